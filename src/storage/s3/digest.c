/* SHA-256, HMAC and MD5 through OpenSSL, which uses the processor's instructions for them; sums as ETags. */
#include "storage/s3/digest_priv.h"

#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

char *ash_hex(const uint8_t *bytes, size_t size_bytes, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < size_bytes; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * size_bytes] = '\0';
    return hex;
}

int ash_sha256_hex(const void *data, size_t size_bytes, char hex_out[ASH_SHA256_HEX_BYTES])
{
    uint8_t sum[ASH_SHA256_BYTES];

    if (EVP_Digest(size_bytes > 0 ? data : "", size_bytes, sum, NULL, EVP_sha256(), NULL) != 1) return -ENOTSUP;
    ash_hex(sum, sizeof(sum), hex_out);
    return 0;
}

int ash_hmac_sha256(const uint8_t *key, size_t key_bytes, const char *text, uint8_t mac_out[ASH_SHA256_BYTES])
{
    uint8_t mac[ASH_SHA256_BYTES];

    ash_assert(key_bytes <= INT_MAX);
    if (HMAC(EVP_sha256(), key, (int)key_bytes, (const uint8_t *)text, strlen(text), mac, NULL) == NULL)
        return -ENOTSUP;
    memcpy(mac_out, mac, sizeof(mac));
    return 0;
}

int ash_md5_of(const void *data, size_t size_bytes, uint8_t sum_out[ASH_MD5_BYTES])
{
    return EVP_Digest(size_bytes > 0 ? data : "", size_bytes, sum_out, NULL, EVP_md5(), NULL) == 1 ? 0 : -ENOTSUP;
}

/* struct ash_md5 is OpenSSL's context under another name. */
static EVP_MD_CTX *context_of(struct ash_md5 *md5)
{
    return (EVP_MD_CTX *)(void *)md5;
}

struct ash_md5 *ash_md5_open(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();

    if (context != NULL && EVP_DigestInit_ex(context, EVP_md5(), NULL) != 1) {
        EVP_MD_CTX_free(context);
        context = NULL;
    }
    return (struct ash_md5 *)(void *)context;
}

void ash_md5_add(struct ash_md5 *md5, const void *data, size_t size_bytes)
{
    int is_good = EVP_DigestUpdate(context_of(md5), data, size_bytes);

    ash_assert(is_good == 1); /* MD5 in memory has nothing that fails after it began */
}

void ash_md5_take(struct ash_md5 *md5, uint8_t sum_out[ASH_MD5_BYTES])
{
    int is_good = EVP_DigestFinal_ex(context_of(md5), sum_out, NULL);

    ash_assert(is_good == 1);
    is_good = EVP_DigestInit_ex(context_of(md5), EVP_md5(), NULL);
    ash_assert(is_good == 1);
}

void ash_md5_close(struct ash_md5 *md5)
{
    EVP_MD_CTX_free(context_of(md5));
}

bool ash_s3_etag_is_md5(const char *etag)
{
    return strlen(etag) == 34 && etag[0] == '"' && etag[33] == '"' && strspn(etag + 1, "0123456789abcdef") == 32;
}

bool ash_s3_etag_matches(const char *etag, const uint8_t sum[ASH_MD5_BYTES], size_t parts)
{
    char hex[ASH_MD5_HEX_BYTES], text[ASH_MD5_HEX_BYTES + 32];

    ash_hex(sum, ASH_MD5_BYTES, hex);
    if (parts == 0)
        snprintf(text, sizeof(text), "\"%s\"", hex);
    else
        snprintf(text, sizeof(text), "\"%s-%zu\"", hex, parts);
    return strcmp(text, etag) == 0;
}
