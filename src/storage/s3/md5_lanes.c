/* MD5 of several texts at once. One MD5 is a chain of operations that each wait for the one before, so a processor
 * idles through most of it; eight chains in vectors keep it busy. OpenSSL has no such thing, and the ETag of an object
 * in parts is made of independent MD5s: reading is bound by them. The rounds are those of RFC 1321. */
#include <string.h>

#include "base/assert.h"
#include "storage/s3/digest_priv.h"

#define WORDS 16

/* A word of every text; the compiler splits it into the machine's vectors. */
typedef uint32_t lanes __attribute__((vector_size(4 * ASH_MD5_LANES)));

struct state {
    lanes a, b, c, d;
};

static const uint32_t addends[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

/* One step: a takes the mix of the others, a word and an addend, turns left and adds b. */
#define STEP(mix, a, b, word, addend, turn)                                                                            \
    do {                                                                                                               \
        (a) += (mix) + (word) + (addend);                                                                              \
        (a) = ((a) << (turn) | (a) >> (32 - (turn))) + (b);                                                            \
    } while (0)
#define F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define H(x, y, z) ((x) ^ (y) ^ (z))
#define I(x, y, z) ((y) ^ ((x) | ~(z)))
/* Four steps of a round: words [first], [first + stride], ... of the block. */
#define FOUR(mix, state, words, first, stride, at, t0, t1, t2, t3)                                                     \
    do {                                                                                                               \
        STEP(mix((state).b, (state).c, (state).d), (state).a, (state).b, (words)[(first) % WORDS], addends[at], t0);   \
        STEP(mix((state).a, (state).b, (state).c), (state).d, (state).a, (words)[((first) + (stride)) % WORDS],        \
             addends[(at) + 1], t1);                                                                                   \
        STEP(mix((state).d, (state).a, (state).b), (state).c, (state).d, (words)[((first) + 2 * (stride)) % WORDS],    \
             addends[(at) + 2], t2);                                                                                   \
        STEP(mix((state).c, (state).d, (state).a), (state).b, (state).c, (words)[((first) + 3 * (stride)) % WORDS],    \
             addends[(at) + 3], t3);                                                                                   \
    } while (0)

static void add_block(struct state *state, const lanes *words)
{
    struct state now = *state;

    for (unsigned i = 0; i < WORDS; i += 4)
        FOUR(F, now, words, i, 1, i, 7, 12, 17, 22);
    for (unsigned i = 0; i < WORDS; i += 4)
        FOUR(G, now, words, 5 * i + 1, 5, WORDS + i, 5, 9, 14, 20);
    for (unsigned i = 0; i < WORDS; i += 4)
        FOUR(H, now, words, 3 * i + 5, 3, 2 * WORDS + i, 4, 11, 16, 23);
    for (unsigned i = 0; i < WORDS; i += 4)
        FOUR(I, now, words, 7 * i, 7, 3 * WORDS + i, 6, 10, 15, 21);
    state->a += now.a;
    state->b += now.b;
    state->c += now.c;
    state->d += now.d;
}

/* Block number `block` of every text, word by word side by side. */
static void gather(const uint8_t *const texts[ASH_MD5_LANES], size_t block, lanes *words)
{
    for (unsigned k = 0; k < WORDS; k++) {
        for (unsigned i = 0; i < ASH_MD5_LANES; i++) {
            uint32_t word;

            memcpy(&word, texts[i] + block * ASH_MD5_BLOCK_BYTES + 4 * (size_t)k, sizeof(word));
            words[k][i] = word;
        }
    }
}

/* What RFC 1321 puts behind a text of whole blocks: a bit, zeros, the length in bits. */
static void pad(size_t size_bytes, lanes *words)
{
    uint64_t bits = (uint64_t)size_bytes * 8;

    memset(words, 0, WORDS * sizeof(*words));
    words[0] += 0x80;
    words[WORDS - 2] += (uint32_t)bits;
    words[WORDS - 1] += (uint32_t)(bits >> 32);
}

void ash_md5_lanes(const uint8_t *const texts[ASH_MD5_LANES], size_t size_bytes,
                   uint8_t sums_out[ASH_MD5_LANES][ASH_MD5_BYTES])
{
    struct state state = {0};
    lanes words[WORDS];

    ash_assert(size_bytes % ASH_MD5_BLOCK_BYTES == 0);
    state.a += 0x67452301u;
    state.b += 0xefcdab89u;
    state.c += 0x98badcfeu;
    state.d += 0x10325476u;
    for (size_t block = 0; block < size_bytes / ASH_MD5_BLOCK_BYTES; block++) {
        gather(texts, block, words);
        add_block(&state, words);
    }
    pad(size_bytes, words);
    add_block(&state, words);
    for (unsigned i = 0; i < ASH_MD5_LANES; i++) {
        const uint32_t sum[4] = {state.a[i], state.b[i], state.c[i], state.d[i]};

        memcpy(sums_out[i], sum, sizeof(sum));
    }
}
