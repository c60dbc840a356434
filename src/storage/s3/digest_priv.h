/* digest - SHA-256, HMAC and MD5 as hexadecimal text, for requests to S3 and the checks of answers. */
#ifndef ASH_STORAGE_S3_DIGEST_PRIV_H
#define ASH_STORAGE_S3_DIGEST_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_SHA256_BYTES 32
#define ASH_SHA256_HEX_BYTES 65 /* with the NUL */
#define ASH_MD5_BYTES 16
#define ASH_MD5_HEX_BYTES 33 /* with the NUL */

/* Lower-case hexadecimal digits of size_bytes bytes, and a NUL, into hex (2 * size_bytes + 1). Returns hex. */
char *ash_hex(const uint8_t *bytes, size_t size_bytes, char *hex);
/* SHA-256 of data as hexadecimal digits. Returns 0, or -ENOTSUP where the library refuses. */
int ash_sha256_hex(const void *data, size_t size_bytes, char hex_out[ASH_SHA256_HEX_BYTES]);
/* HMAC-SHA-256. mac_out may be key. Returns as ash_sha256_hex. */
int ash_hmac_sha256(const uint8_t *key, size_t key_bytes, const char *text, uint8_t mac_out[ASH_SHA256_BYTES]);
/* MD5 of data. Returns 0, or -ENOTSUP where the system forbids MD5. */
int ash_md5_of(const void *data, size_t size_bytes, uint8_t sum_out[ASH_MD5_BYTES]);

#define ASH_MD5_LANES 8 /* texts whose MD5s are computed at once */
#define ASH_MD5_BLOCK_BYTES 64

/* MD5 of ASH_MD5_LANES texts of size_bytes each, whole blocks: several times as fast as one after the other. */
void ash_md5_lanes(const uint8_t *const texts[ASH_MD5_LANES], size_t size_bytes,
                   uint8_t sums_out[ASH_MD5_LANES][ASH_MD5_BYTES]);

struct ash_md5; /* of bytes that come in pieces */

/* Begin. Returns NULL where memory is out or MD5 forbidden; end it with ash_md5_close. */
struct ash_md5 *ash_md5_open(void);
/* The next bytes. */
void ash_md5_add(struct ash_md5 *md5, const void *data, size_t size_bytes);
/* The sum so far; restarts. */
void ash_md5_take(struct ash_md5 *md5, uint8_t sum_out[ASH_MD5_BYTES]);
/* Free; NULL is a no-op. */
void ash_md5_close(struct ash_md5 *md5);

/* Is the ETag the MD5 of the whole object? Then its 32 digits are compared with sum. */
bool ash_s3_etag_is_md5(const char *etag);
/* Do the 16 bytes of sum spell this ETag, "…" or "…-parts" (0: no parts)? */
bool ash_s3_etag_matches(const char *etag, const uint8_t sum[ASH_MD5_BYTES], size_t parts);

#endif
