/* cuda_driver - the part of the CUDA driver API that Ashlar uses, opened at run time from libcuda.so.1. The
 * declarations are our own, so that every build can use a GPU if the machine it runs on has one. */
#ifndef ASH_INFRA_DEVICE_CUDA_DRIVER_H
#define ASH_INFRA_DEVICE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

typedef int ash_cuda_result; /* 0: success */
typedef uint64_t ash_cuda_ptr;

enum { /* CU_DEVICE_ATTRIBUTE_... */
       ASH_CUDA_ATTR_SM_COUNT = 16,
       ASH_CUDA_ATTR_CC_MAJOR = 75,
       ASH_CUDA_ATTR_CC_MINOR = 76,
       ASH_CUDA_ATTR_SHARED_OPTIN = 97,
       ASH_CUDA_ATTR_STREAM_VALUES = 122, /* CAN_USE_64_BIT_STREAM_MEM_OPS */
};
enum { /* CU_FUNC_ATTRIBUTE_... */
       ASH_CUDA_FUNC_STATIC_SHARED_BYTES = 1,
       ASH_CUDA_FUNC_DYNAMIC_SHARED_BYTES = 8,
       ASH_CUDA_FUNC_SHARED_CARVEOUT = 9,
};
enum { ASH_CUDA_STREAM_DEFAULT = 0, ASH_CUDA_STREAM_ALONE = 1 /* CU_STREAM_NON_BLOCKING */ };
enum { ASH_CUDA_HOST_PORTABLE = 1, ASH_CUDA_HOST_MAPPED = 2 };
enum { ASH_CUDA_EVENT_WITHOUT_TIME = 2, ASH_CUDA_NOT_READY = 600 };
enum {
    ASH_CUDA_POINTER_MEMORY = 2,
    ASH_CUDA_MEMORY_DEVICE = 2
}; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_... */
enum { ASH_CUDA_INVALID_VALUE = 1, ASH_CUDA_OUT_OF_MEMORY = 2, ASH_CUDA_NOT_SUPPORTED = 801 }; /* CUDA_ERROR_... */
enum { ASH_CUDA_LAUNCH_EARLY = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

enum { ASH_CUDA_MAP_BF16 = 9, ASH_CUDA_MAP_SWIZZLE_128 = 3, ASH_CUDA_MAP_L2_256 = 3 }; /* CU_TENSOR_MAP_... */

/* CUlaunchAttribute: one of them is used. */
struct ash_cuda_launch_attr {
    int id, unused;
    int value, more[15];
};

/* CUlaunchConfig. */
struct ash_cuda_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream;
    struct ash_cuda_launch_attr *attrs;
    unsigned attr_count;
};

enum { ASH_CUDA_ALLOC_PINNED = 1, ASH_CUDA_HANDLE_POSIX_FD = 1, ASH_CUDA_PLACE_DEVICE = 1 };
enum { ASH_CUDA_ACCESS_READ_WRITE = 3 };

/* CUmemLocation. */
struct ash_cuda_place {
    int type, id;
};

/* CUmemAllocationProp. */
struct ash_cuda_alloc_props {
    int type, handle_types;
    struct ash_cuda_place place;
    void *unused;
    unsigned char flags[8];
};

/* CUmemAccessDesc. */
struct ash_cuda_access {
    struct ash_cuda_place place;
    int flags;
};

/* The driver's functions: X(member, symbol, parameters). */
#define ASH_CUDA_FUNCTIONS(X)                                                                                          \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(driver_version, "cuDriverGetVersion", (int *version_out))                                                        \
    X(device_count, "cuDeviceGetCount", (int *count_out))                                                              \
    X(device_get, "cuDeviceGet", (int *device_out, int index))                                                         \
    X(device_name, "cuDeviceGetName", (char *name, int name_bytes, int device))                                        \
    X(device_uuid, "cuDeviceGetUuid_v2", (void *uuid, int device))                                                     \
    X(device_attribute, "cuDeviceGetAttribute", (int *value_out, int attribute, int device))                           \
    X(device_bytes, "cuDeviceTotalMem_v2", (size_t * bytes_out, int device))                                           \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **context_out, int device))                                    \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                   \
    X(context_use, "cuCtxSetCurrent", (void *context))                                                                 \
    X(pointer_get, "cuPointerGetAttribute", (void *value_out, int attribute, ash_cuda_ptr ptr))                        \
    X(memory_info, "cuMemGetInfo_v2", (size_t * free_bytes_out, size_t * all_bytes_out))                               \
    X(alloc, "cuMemAlloc_v2", (ash_cuda_ptr * ptr_out, size_t size_bytes))                                             \
    X(free, "cuMemFree_v2", (ash_cuda_ptr ptr))                                                                        \
    X(host_alloc, "cuMemHostAlloc", (void **ptr_out, size_t size_bytes, unsigned flags))                               \
    X(host_free, "cuMemFreeHost", (void *ptr))                                                                         \
    X(host_register, "cuMemHostRegister_v2", (void *ptr, size_t size_bytes, unsigned flags))                           \
    X(host_forget, "cuMemHostUnregister", (void *ptr))                                                                 \
    X(host_address, "cuMemHostGetDevicePointer_v2", (ash_cuda_ptr * ptr_out, void *ptr, unsigned flags))               \
    X(copy, "cuMemcpyAsync", (ash_cuda_ptr dst, ash_cuda_ptr src, size_t size_bytes, void *stream))                    \
    X(copy_peer, "cuMemcpyPeerAsync",                                                                                  \
      (ash_cuda_ptr dst, void *dst_context, ash_cuda_ptr src, void *src_context, size_t size_bytes, void *stream))     \
    X(can_access, "cuDeviceCanAccessPeer", (int *can_out, int device, int peer))                                       \
    X(enable_access, "cuCtxEnablePeerAccess", (void *peer_context, unsigned flags))                                    \
    X(granularity, "cuMemGetAllocationGranularity",                                                                    \
      (size_t * bytes_out, const struct ash_cuda_alloc_props *props, int which))                                       \
    X(create, "cuMemCreate",                                                                                           \
      (uint64_t * handle_out, size_t size_bytes, const struct ash_cuda_alloc_props *props, unsigned long long flags))  \
    X(release, "cuMemRelease", (uint64_t handle))                                                                      \
    X(export_handle, "cuMemExportToShareableHandle",                                                                   \
      (void *fd_out, uint64_t handle, int type, unsigned long long flags))                                             \
    X(import_handle, "cuMemImportFromShareableHandle", (uint64_t * handle_out, void *fd, int type))                    \
    X(address_reserve, "cuMemAddressReserve",                                                                          \
      (ash_cuda_ptr * ptr_out, size_t size_bytes, size_t align, ash_cuda_ptr wanted, unsigned long long flags))        \
    X(address_free, "cuMemAddressFree", (ash_cuda_ptr ptr, size_t size_bytes))                                         \
    X(map, "cuMemMap", (ash_cuda_ptr ptr, size_t size_bytes, size_t first, uint64_t handle, unsigned long long flags)) \
    X(unmap, "cuMemUnmap", (ash_cuda_ptr ptr, size_t size_bytes))                                                      \
    X(set_access, "cuMemSetAccess",                                                                                    \
      (ash_cuda_ptr ptr, size_t size_bytes, const struct ash_cuda_access *access, size_t count))                       \
    X(set8, "cuMemsetD8Async", (ash_cuda_ptr dst, unsigned char value, size_t size_bytes, void *stream))               \
    X(stream_create, "cuStreamCreate", (void **stream_out, unsigned flags))                                            \
    X(stream_wait, "cuStreamSynchronize", (void *stream))                                                              \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                                            \
    X(stream_after, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))                                  \
    X(stream_write64, "cuStreamWriteValue64_v2", (void *stream, ash_cuda_ptr at, uint64_t value, unsigned flags))      \
    X(stream_wait64, "cuStreamWaitValue64_v2", (void *stream, ash_cuda_ptr at, uint64_t value, unsigned flags))        \
    X(event_create, "cuEventCreate", (void **event_out, unsigned flags))                                               \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                                      \
    X(event_wait, "cuEventSynchronize", (void *event))                                                                 \
    X(event_query, "cuEventQuery", (void *event))                                                                      \
    X(event_ms, "cuEventElapsedTime", (float *ms_out, void *start, void *end))                                         \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                                               \
    X(module_load, "cuModuleLoadData", (void **module_out, const void *image))                                         \
    X(module_unload, "cuModuleUnload", (void *module))                                                                 \
    X(module_function, "cuModuleGetFunction", (void **function_out, void *module, const char *name))                   \
    X(function_get, "cuFuncGetAttribute", (int *value_out, int attribute, void *function))                             \
    X(function_set, "cuFuncSetAttribute", (void *function, int attribute, int value))                                  \
    X(launch, "cuLaunchKernelEx",                                                                                      \
      (const struct ash_cuda_launch_config *config, void *function, void **args, void **extra))                        \
    X(map_tiled, "cuTensorMapEncodeTiled",                                                                             \
      (void *map_out, int type, unsigned rank, void *data, const uint64_t *sizes, const uint64_t *strides_bytes,       \
       const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill))              \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                                              \
    X(capture_end, "cuStreamEndCapture", (void *stream, void **recorded_out))                                          \
    X(graph_make, "cuGraphInstantiateWithFlags", (void **graph_out, void *recorded, unsigned long long flags))         \
    X(graph_launch, "cuGraphLaunch", (void *graph, void *stream))                                                      \
    X(graph_destroy, "cuGraphExecDestroy", (void *graph))                                                              \
    X(graph_forget, "cuGraphDestroy", (void *recorded))                                                                \
    X(error_name, "cuGetErrorName", (ash_cuda_result result, const char **name_out))                                   \
    X(error_text, "cuGetErrorString", (ash_cuda_result result, const char **text_out))

struct ash_cuda_driver {
#define ASH_CUDA_MEMBER(member, symbol, parameters) ash_cuda_result(*member) parameters;
    ASH_CUDA_FUNCTIONS(ASH_CUDA_MEMBER)
#undef ASH_CUDA_MEMBER
};

/* The driver, opened at the first call and kept for the life of the process. Returns NULL and names in err the
 * missing part: the library, one of its functions, or a GPU that it can use. Any thread. */
const struct ash_cuda_driver *ash_cuda_driver_get(struct ash_err *err);
/* "CUDA_ERROR_OUT_OF_MEMORY: out of memory", into buf. Returns buf. */
const char *ash_cuda_describe(const struct ash_cuda_driver *driver, ash_cuda_result result, char *buf,
                              size_t buf_bytes);

#endif
