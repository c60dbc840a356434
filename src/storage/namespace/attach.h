/* attach - a remote folder as one on this machine, whose large files stay in the remote place and are read by ranges on
 * demand (storage/io/remote_file.h). For models: weights are used in parts, in a known order. */
#ifndef ASH_STORAGE_NAMESPACE_ATTACH_H
#define ASH_STORAGE_NAMESPACE_ATTACH_H

#include "storage/namespace/namespace.h"

/* Fetch url, an object or all below a prefix, as ash_namespace_fetch_url does, except for safetensors and GGUF files of
 * more than a MiB: those become remote files until the process ends. Ranges read of them are cached as far as there is
 * space, and once all of one was read, it is a file like others. The settings are the environment's. watch may be NULL.
 * The path of the file or folder is appended to path. */
int ash_attach_url(const char *url, const struct ash_namespace_watch *watch, struct ash_str *path, struct ash_err *err);

#endif
