/* ashlar version: this build, its libraries, and the kernels that this machine can run. */
#include "cmd/cmd.h"

#include <jansson.h>
#include <microhttpd.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <yaml.h>

#include "base/assert.h"
#include "base/json.h"
#include "build_info.h"
#include "compute/cuda/backend.h"
#include "compute/ops.h"
#include "infra/cpu.h"
#include "model/config.h"

struct version_flags {
    bool json;
};

#define FIELD(name) offsetof(struct version_flags, name)

static const struct ash_opt version_opts[] = {
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};

static const struct ash_opt_table version_table = {
    .section = "", .help = "flags", .opts = version_opts, .count = ASH_COUNT(version_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar version [--json]",
    .about =
        "Says what this build is, which libraries it runs with, which backends this machine can run (best\n"
        "first; all of them compute on the CPU) and which model families it reads. A GPU is used by every command\n"
        "that runs a model, unless it is told otherwise (--backend cpu, runtime.backend=cpu); the line of the GPU\n"
        "says what is missing: driver, GPU, kernels, or the libraries that make it faster. The last line is what\n"
        "the build found on top: libfabric joins several machines.",
};

/* The libraries' versions as they are loaded, not as they were compiled against. */
static json_t *library_facts(void)
{
    char pcre2[64] = "", xxhash[32];
    unsigned xx = XXH_versionNumber();

    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2[strcspn(pcre2, " ")] = '\0'; /* "10.42 2022-12-11" */
    snprintf(xxhash, sizeof(xxhash), "%u.%u.%u", xx / 10000, xx / 100 % 100, xx % 100);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "jansson", jansson_version_str(), "libyaml",
                     yaml_get_version_string(), "pcre2", pcre2, "xxhash", xxhash, "libmicrohttpd", MHD_get_version(),
                     "utf8proc", utf8proc_version());
}

/* Optional parts: false, or the version found. */
static json_t *found(const char *text)
{
    return text[0] != '\0' && strstr(text, "NOTFOUND") == NULL ? json_string(text) : json_false();
}

static json_t *backend_names(void)
{
    json_t *names = json_array();

    for (const char *const *name = ash_exec_backends(); *name != NULL; name++)
        json_array_append_new(names, json_string(*name));
    return names;
}

/* Requirements of a GPU, each found or missing. */
static json_t *gpu_facts(void)
{
    struct ash_cuda_parts parts;

    ash_cuda_backend_find_parts(&parts);
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "driver", parts.driver, "device", parts.device, "kernels",
                     parts.kernels, "cuBLASLt", parts.library, "NVML", parts.nvml);
}

static json_t *gather(void)
{
    const struct ash_cpu *cpu = ash_cpu_get();
    char line[512];
    json_t *build = json_pack("{s:s, s:s, s:s, s:s}", "version", ASH_BUILD_VERSION, "compiler", ASH_BUILD_COMPILER,
                              "build", ASH_BUILD_TYPE, "sanitizers", ASH_BUILD_SANITIZE);
    json_t *machine = json_pack("{s:s, s:i, s:o, s:o}", "machine", ash_cpu_describe(cpu, line, sizeof(line)), "cores",
                                cpu->core_count, "gpu", gpu_facts(), "backends", backend_names());
    json_t *parts = json_pack(
        "{s:s, s:o, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}}", "families", ash_model_families(), "libraries",
        library_facts(), "optional", "libfabric", found(ASH_BUILD_FABRIC), "nvcc", found(ASH_BUILD_NVCC), "libzstd",
        found(ASH_BUILD_ZSTD), "snappy", found(ASH_BUILD_SNAPPY), "liblz4", found(ASH_BUILD_LZ4), "libbrotlidec",
        found(ASH_BUILD_BROTLI), "libedit", found(ASH_BUILD_EDIT), "libcurl", found(ASH_BUILD_CURL));

    json_object_update(build, machine);
    json_object_update(build, parts);
    json_decref(machine);
    json_decref(parts);
    return build;
}

static const char *text_of(const json_t *facts, const char *key)
{
    return json_string_value(json_object_get(facts, key));
}

static void print_named(const char *title, const json_t *values)
{
    const char *name, *comma = "";
    json_t *value;

    printf("  %-10s ", title);
    json_object_foreach((json_t *)(uintptr_t)values, name, value) {
        printf("%s%s %s", comma, name, json_is_string(value) ? json_string_value(value) : "no");
        comma = ", ";
    }
    printf("\n");
}

static void print_facts(const json_t *facts)
{
    const json_t *backends = json_object_get(facts, "backends");
    const char *sanitizers = text_of(facts, "sanitizers");

    printf("ashlar %s (%s, %s%s%s)\n", text_of(facts, "version"), text_of(facts, "compiler"), text_of(facts, "build"),
           sanitizers[0] != '\0' ? ", sanitizers: " : "", sanitizers);
    printf("  %-10s %s\n", "machine", text_of(facts, "machine"));
    print_named("gpu", json_object_get(facts, "gpu"));
    printf("  %-10s ", "backends");
    for (size_t i = 0; i < json_array_size(backends); i++)
        printf("%s%s", i > 0 ? ", " : "", json_string_value(json_array_get(backends, i)));
    printf(" (all on the CPU)\n  %-10s %s\n", "models", text_of(facts, "families"));
    print_named("libraries", json_object_get(facts, "libraries"));
    print_named("found", json_object_get(facts, "optional"));
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct version_flags *flags = ctx;
    struct ash_err err = {0};
    json_t *facts = gather();

    (void)opts;
    (void)word;
    if (flags->json || facts == NULL) return ash_cmd_print_json(facts, &err) < 0 ? ash_cmd_fail(&err) : 0;
    print_facts(facts);
    json_decref(facts);
    return 0;
}

static int run(int argc, char **argv)
{
    struct version_flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&version_table, &flags}}, .respond = respond, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_version = {"version", "this build, and what this machine offers it", run};
