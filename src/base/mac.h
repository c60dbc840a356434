/* mac - proof that a message comes from an owner of the key: HMAC-SHA-256, cut to 16 bytes. */
#ifndef ASH_BASE_MAC_H
#define ASH_BASE_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_MAC_BYTES 16
#define ASH_MAC_KEY_BYTES 32

/* The proof of two pieces, one after the other. Returns 0 or -ENOTSUP where the library refuses. */
int ash_mac(const uint8_t key[ASH_MAC_KEY_BYTES], const void *first, size_t first_bytes, const void *second,
            size_t second_bytes, uint8_t mac_out[ASH_MAC_BYTES]);
/* Compare two proofs in a time that does not depend on them. */
bool ash_mac_equal(const uint8_t a[ASH_MAC_BYTES], const uint8_t b[ASH_MAC_BYTES]);
/* Unpredictable random bytes. Returns 0 or a negative errno. */
int ash_mac_random(void *data, size_t size_bytes);

#endif
