/* attn_docs - documents of a batch as attention's kernels read them, from their rows and from where its keys and values
 * begin. */
#include "compute/cuda/tile/device.cuh"

extern "C" __global__ void attn_point_docs(struct ash_cuda_attn_docs op)
{
    EACH(i, op.count)
    {
        struct ash_cuda_attn_doc doc = op.docs[i];
        struct ash_cuda_attn_seq seq = {};

        seq.q_row = seq.kv_first = doc.row;
        seq.q_count = doc.count;
        seq.k = (const char *)op.k + doc.row * op.k_row_bytes;
        seq.v = (const char *)op.v + doc.row * op.v_row_bytes;
        if (op.dk != NULL) seq.dk = op.dk + doc.row * op.k_stride;
        if (op.dv != NULL) seq.dv = op.dv + doc.row * op.v_stride;
        op.seqs[i] = seq;
    }
}
