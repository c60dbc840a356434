/* Shared memory: static arrays are the image's thread-local memory, which is exchanged when another block runs; dynamic
 * ones lie in a block's arena. 32-bit addresses count through both. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "emulate/emulator.h"

#define ARENA_BYTES ((size_t)512 << 10)
#define CANARY_BYTES 1024u /* after a block's last byte */
#define BORDER 1024u       /* up to which address and pointer agree */

/* The thread-local memory of the object that has `anchor`. */
struct search {
    const unsigned char *anchor;
    unsigned char *data;
    size_t size_bytes;
};

static int look_at(struct dl_phdr_info *info, size_t, void *data)
{
    struct search *search = (struct search *)data;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const unsigned char *from = (const unsigned char *)info->dlpi_tls_data;

        if (info->dlpi_phdr[i].p_type != PT_TLS || from == NULL) continue;
        if (search->anchor < from || search->anchor >= from + info->dlpi_phdr[i].p_memsz) continue;
        search->data = (unsigned char *)info->dlpi_tls_data;
        search->size_bytes = info->dlpi_phdr[i].p_memsz;
        return 1;
    }
    return 0;
}

void emu_shared_begin(const struct emu_image *image)
{
    struct search search = {(const unsigned char *)image->anchor(), NULL, 0};

    dl_iterate_phdr(look_at, &search);
    if (search.data == NULL) emu_fail("the image has no thread-local memory");
    emu_run.statics = search.data;
    emu_run.static_bytes = search.size_bytes;
    emu_run.resident = NULL;
    emu_run.dynamic_at = 0; /* known when a thread asks */
    if (emu_run.grid.shared_bytes > EMU_SHARED_BYTES - EMU_SHARED_FIRST)
        emu_fail("%u bytes of shared memory: a thread block has %u", emu_run.grid.shared_bytes,
                 EMU_SHARED_BYTES - EMU_SHARED_FIRST);
}

unsigned char *emu_arena_open(void)
{
    void *arena =
        mmap(NULL, ARENA_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (arena == MAP_FAILED || mprotect((char *)arena + ARENA_BYTES, 4096, PROT_NONE) != 0) {
        fprintf(stderr, "emulator: no memory for a thread block\n");
        abort();
    }
    return (unsigned char *)arena;
}

void emu_arena_begin(struct emu_block *block)
{
    memset(block->arena, EMU_POISON, BORDER + emu_run.grid.shared_bytes + CANARY_BYTES);
    block->saved_static.assign(emu_run.static_bytes, EMU_POISON);
}

void emu_make_resident(struct emu_block *block)
{
    if (emu_run.resident == block) return;
    if (emu_run.resident != NULL) memcpy(emu_run.resident->saved_static.data(), emu_run.statics, emu_run.static_bytes);
    memcpy(emu_run.statics, block->saved_static.data(), emu_run.static_bytes);
    emu_run.resident = block;
}

/* Where dynamic shared memory begins in a block's arena. */
static unsigned char *dynamic_of(struct emu_block *block)
{
    return block->arena + emu_run.dynamic_at % BORDER;
}

void *emu_dynamic_shared(unsigned border)
{
    unsigned first = (EMU_SHARED_FIRST + (unsigned)emu_run.static_bytes + BORDER - 1) / BORDER * BORDER;

    /* No better a border than was asked for. */
    if (emu_run.dynamic_at == 0) emu_run.dynamic_at = first + border % BORDER;
    if (emu_run.dynamic_at % border != 0) emu_fail("DYNAMIC_SHARED with borders of different sizes");
    return dynamic_of(emu_now->block);
}

unsigned emu_shared_address(const void *at)
{
    const unsigned char *byte = (const unsigned char *)at, *dynamic = dynamic_of(emu_now->block);

    if (byte >= emu_run.statics && byte < emu_run.statics + emu_run.static_bytes)
        return EMU_SHARED_FIRST + (unsigned)(byte - emu_run.statics);
    /* An address past the end may be computed; who uses it is told. */
    if (emu_run.dynamic_at != 0 && byte >= dynamic && byte < dynamic + (1 << 24))
        return emu_run.dynamic_at + (unsigned)(byte - dynamic);
    emu_fail("%p is not in this block's shared memory", at);
}

unsigned char *emu_shared_at(struct emu_block *block, unsigned address, size_t bytes)
{
    size_t first = address - (size_t)EMU_SHARED_FIRST;

    if (address >= EMU_SHARED_FIRST && first + bytes <= emu_run.static_bytes)
        return (block == emu_run.resident ? emu_run.statics : block->saved_static.data()) + first;
    if (emu_run.dynamic_at != 0 && address >= emu_run.dynamic_at &&
        address - emu_run.dynamic_at + bytes <= emu_run.grid.shared_bytes)
        return dynamic_of(block) + (address - emu_run.dynamic_at);
    emu_fail(
        "%zu bytes at 0x%x are outside of shared memory (static from 0x%x, %zu bytes; dynamic from 0x%x, %u bytes)",
        bytes, address, EMU_SHARED_FIRST, emu_run.static_bytes, emu_run.dynamic_at, emu_run.grid.shared_bytes);
}

void emu_block_ended(struct emu_block *block)
{
    const unsigned char *past = dynamic_of(block) + emu_run.grid.shared_bytes;

    emu_check_products(block);
    for (const struct emu_landing &landing : emu_run.landings)
        if (landing.block == block)
            emu_fail("block (%u, %u, %u) ended, and a bulk copy to it is in flight", block->index.x, block->index.y,
                     block->index.z);
    for (unsigned i = 0; i < CANARY_BYTES - emu_run.dynamic_at % BORDER; i++)
        if (past[i] != EMU_POISON)
            emu_fail("block (%u, %u, %u) wrote %u bytes after its shared memory", block->index.x, block->index.y,
                     block->index.z, i);
}
