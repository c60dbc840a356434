/* NVML, opened at run time. */
#include "infra/device/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"

#define LIBRARY "libnvidia-ml.so.1"

static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define FUNCTION(member, symbol, parameters) {symbol, offsetof(struct ash_nvml, member)},
    ASH_NVML_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

int ash_nvml_open(struct ash_nvml *nvml, const char *path, struct ash_err *err)
{
    ash_nvml_result result;

    memset(nvml, 0, sizeof(*nvml));
    nvml->library = dlopen(path != NULL ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) return ash_err_set(err, -ENOENT, "no NVIDIA driver is installed (%s)", dlerror());
    for (size_t i = 0; i < ASH_COUNT(functions); i++) {
        void *function = dlsym(nvml->library, functions[i].symbol);

        memcpy((char *)nvml + functions[i].offset, &function, sizeof(function));
    }
    if (nvml->init == NULL || nvml->count == NULL || nvml->handle == NULL || nvml->shutdown == NULL) {
        dlclose(nvml->library);
        memset(nvml, 0, sizeof(*nvml));
        return ash_err_set(err, -ENOSYS, "%s is too old", LIBRARY);
    }
    result = nvml->init();
    if (result == 0) return 0;
    dlclose(nvml->library);
    memset(nvml, 0, sizeof(*nvml));
    return ash_err_set(err, -ENODEV, "the NVIDIA driver does not answer (NVML error %d)", result);
}

void ash_nvml_close(struct ash_nvml *nvml)
{
    if (nvml->library == NULL) return;
    nvml->shutdown();
    dlclose(nvml->library);
    memset(nvml, 0, sizeof(*nvml));
}
