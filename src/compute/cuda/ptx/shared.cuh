/* shared - shared memory: how much of it a kernel gets is said at its launch, and instructions want addresses of 32
 * bits. */
#ifndef ASH_COMPUTE_CUDA_SHARED_CUH
#define ASH_COMPUTE_CUDA_SHARED_CUH

/* `name` is the shared memory that the launch reserved, as an array of `type` at a border of `border` bytes. */
#define DYNAMIC_SHARED(type, name, border)                                                                             \
    extern __shared__ __align__(border)                                                                                \
    type name[]

/* Where something in shared memory is, as instructions want to be told. */
static __device__ inline unsigned shared_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

#endif
