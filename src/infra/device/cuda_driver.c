/* The CUDA driver, opened at run time: one attempt per process, whose outcome every later call gets. */
#include "infra/device/cuda_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"

#define LIBRARY "libcuda.so.1"

static struct ash_cuda_driver driver;
static struct ash_err open_error;
static int open_rc;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Where each function of the list belongs in the struct. */
static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define FUNCTION(member, symbol, parameters) {symbol, offsetof(struct ash_cuda_driver, member)},
    ASH_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static int find_functions(void *library)
{
    for (size_t i = 0; i < ASH_COUNT(functions); i++) {
        void *function = dlsym(library, functions[i].symbol);

        if (function == NULL)
            return ash_err_set(&open_error, -ENOSYS, "the NVIDIA driver is too old: %s has no %s", LIBRARY,
                               functions[i].symbol);
        memcpy((char *)&driver + functions[i].offset, &function, sizeof(function));
    }
    return 0;
}

static int find_devices(void)
{
    char text[128];
    int count = 0;
    ash_cuda_result result = driver.init(0);

    if (result == 0) result = driver.device_count(&count);
    if (result != 0)
        return ash_err_set(&open_error, -ENODEV, "no GPU can be used: %s",
                           ash_cuda_describe(&driver, result, text, sizeof(text)));
    if (count == 0) return ash_err_set(&open_error, -ENODEV, "no GPU can be used: the driver sees none");
    return 0;
}

/* Queues that wait for other ranks must not share a channel with others, which would then wait, too: as many as there
 * are. The driver reads this when it is opened. */
static void ask_for_channels(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static void open_driver(void)
{
    void *library;

    ask_for_channels();
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        open_rc =
            ash_err_set(&open_error, -ENODEV, "no GPU can be used: the NVIDIA driver is not installed (%s)", dlerror());
        return;
    }
    open_rc = find_functions(library);
    if (open_rc == 0) open_rc = find_devices();
    if (open_rc < 0) dlclose(library);
}

const struct ash_cuda_driver *ash_cuda_driver_get(struct ash_err *err)
{
    pthread_once(&once, open_driver);
    if (open_rc == 0) return &driver;
    if (err != NULL) *err = open_error;
    return NULL;
}

const char *ash_cuda_describe(const struct ash_cuda_driver *of, ash_cuda_result result, char *buf, size_t buf_bytes)
{
    const char *name = NULL, *text = NULL;

    of->error_name(result, &name);
    of->error_text(result, &text);
    snprintf(buf, buf_bytes, "%s: %s", name != NULL ? name : "unknown error", text != NULL ? text : "no description");
    return buf;
}
