/* HMAC-SHA-256 through OpenSSL, which uses the processor's instructions for it. */
#include "base/mac.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"

#define BLOCK_BYTES 64
#define SUM_BYTES 32

/* HMAC is two hashes around the padded key; two pieces need no copy that way. */
static int hash(const uint8_t pad[BLOCK_BYTES], const void *first, size_t first_bytes, const void *second,
                size_t second_bytes, uint8_t sum_out[SUM_BYTES])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int is_good =
        context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
        EVP_DigestUpdate(context, pad, BLOCK_BYTES) == 1 && EVP_DigestUpdate(context, first, first_bytes) == 1 &&
        EVP_DigestUpdate(context, second, second_bytes) == 1 && EVP_DigestFinal_ex(context, sum_out, NULL) == 1;

    EVP_MD_CTX_free(context);
    return is_good ? 0 : -ENOTSUP;
}

int ash_mac(const uint8_t key[ASH_MAC_KEY_BYTES], const void *first, size_t first_bytes, const void *second,
            size_t second_bytes, uint8_t mac_out[ASH_MAC_BYTES])
{
    uint8_t inner[BLOCK_BYTES], outer[BLOCK_BYTES], sum[SUM_BYTES], whole[SUM_BYTES];
    int rc;

    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        uint8_t byte = i < ASH_MAC_KEY_BYTES ? key[i] : 0;

        inner[i] = byte ^ 0x36;
        outer[i] = byte ^ 0x5c;
    }
    rc = hash(inner, first, first_bytes, second, second_bytes, sum);
    if (rc == 0) rc = hash(outer, sum, sizeof(sum), "", 0, whole);
    if (rc == 0) memcpy(mac_out, whole, ASH_MAC_BYTES);
    return rc;
}

bool ash_mac_equal(const uint8_t a[ASH_MAC_BYTES], const uint8_t b[ASH_MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, ASH_MAC_BYTES) == 0;
}

int ash_mac_random(void *data, size_t size_bytes)
{
    ash_assert(size_bytes <= 256); /* so much comes at once */
    return getrandom(data, size_bytes, 0) == (ssize_t)size_bytes ? 0 : -EIO;
}
