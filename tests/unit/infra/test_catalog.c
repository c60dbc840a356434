/* The catalog: known facts of public datasheets, users' files over it, refusals with names, clusters as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "infra/catalog.h"

static int open_with(const char *text, struct ash_catalog **catalog_out, struct ash_err *err)
{
    return ash_catalog_parse(text, text != NULL ? strlen(text) : 0, "mine.yaml", catalog_out, err);
}

static void refuses(const char *text, const char *words)
{
    struct ash_catalog *catalog = NULL;
    struct ash_err err = {0};

    assert_true(open_with(text, &catalog, &err) < 0);
    assert_null(catalog);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' does not say '%s'", err.text, words);
}

static void knows_public_facts(void **state)
{
    struct ash_catalog *catalog = NULL;
    const struct ash_machine *machine = NULL;
    const struct ash_gpu *gpu = NULL;

    (void)state;
    assert_int_equal(open_with(NULL, &catalog, NULL), 0);
    assert_int_equal(ash_catalog_gpu(catalog, "h100", &gpu, NULL), 0); /* NVIDIA H100 SXM datasheet */
    assert_float_equal(gpu->flops[ASH_GPU_BF16], 989.4e12, 1e9);
    assert_float_equal(gpu->memory_bandwidth, 3.35e12, 1e6);
    assert_float_equal(gpu->nvlink_bandwidth, 450e9, 1e3);
    assert_int_equal(ash_catalog_gpu(catalog, "B300", &gpu, NULL), 0); /* 288 is decimal, 275040 MiB */
    assert_float_equal(gpu->memory_bytes, 275040.0 * 1048576, 1);
    assert_int_equal(ash_catalog_machine(catalog, "p5.48xlarge", &machine, NULL), 0); /* 32 x 100 Gbit/s one way */
    assert_float_equal(machine->net_bandwidth, 400e9, 1);
    assert_int_equal(machine->gpus, 8);
    assert_int_equal(ash_catalog_machine(catalog, "u-p6e-gb200x72", &machine, NULL), 0);
    assert_int_equal(machine->domain_gpus, 72);
    ash_catalog_close(catalog);
}

/* Every value of a GPU or machine that is a map names a source that is listed or is an address. */
static void every_fact_has_a_source(void **state)
{
    static const char *const lists[] = {"gpus", "machines"};
    struct ash_catalog *catalog = NULL;
    size_t facts = 0;

    (void)state;
    assert_int_equal(open_with(NULL, &catalog, NULL), 0);
    for (size_t l = 0; l < 2; l++) {
        const json_t *things = json_object_get(ash_catalog_json(catalog), lists[l]);
        for (size_t i = 0; i < json_array_size(things); i++) {
            const char *key;
            json_t *fact;
            json_object_foreach(json_array_get(things, i), key, fact) {
                const json_t *sources = json_object_get(fact, "source");
                if (!json_is_object(fact)) continue;
                assert_true(json_array_size(sources) > 0);
                for (size_t s = 0; s < json_array_size(sources); s++) {
                    const char *id = json_string_value(json_array_get(sources, s));
                    if (strncmp(id, "http", 4) != 0 &&
                        json_object_get(json_object_get(ash_catalog_json(catalog), "sources"), id) == NULL)
                        fail_msg("source '%s' of %s is not listed", id, key);
                }
                facts++;
            }
        }
    }
    assert_true(facts > 200);
    ash_catalog_close(catalog);
}

static void users_add_and_replace(void **state)
{
    struct ash_catalog *catalog = NULL;
    const struct ash_machine *machine = NULL;

    (void)state;
    assert_int_equal(open_with("gpus:\n  - {name: X1, bf16_tflops: 100, memory_marketed_gb: 64, memory_tb_s: 1.5}\n"
                               "machines:\n  - {name: box, gpu: X1, gpus: 4, network_gbps: 800}\n"
                               "  - {name: p5.48xlarge, usd_hour: {value: 40, source: [contract]}}\n",
                               &catalog, NULL),
                     0);
    assert_int_equal(ash_catalog_machine(catalog, "BOX", &machine, NULL), 0);
    assert_float_equal(machine->net_bandwidth, 100e9, 1);
    assert_int_equal(machine->domain_gpus, 1); /* no NVLink was given */
    assert_int_equal(ash_catalog_machine(catalog, "p5.48xlarge", &machine, NULL), 0);
    assert_float_equal(machine->usd_hour, 40, 1e-9);
    assert_float_equal(machine->net_bandwidth, 400e9, 1); /* what was not named stays */
    ash_catalog_close(catalog);
}

static void refuses_nonsense(void **state)
{
    (void)state;
    refuses("gpus: 3", "gpus must be a list");
    refuses("gpus: [3]", "must be a map");
    refuses("machines: [{gpu: H100}]", "needs a name");
    refuses("machines: [{name: m}]", "needs gpu");
    refuses("machines: [{name: m, gpu: nope, gpus: 1}]", "no GPU 'nope'");
    refuses("machines: [{name: m, gpu: H100, gpus: -8}]", "gpus must be a number");
    refuses("machines: [{name: m, gpu: H100, gpus: many}]", "gpus must be a number");
    refuses("gpus: [{name: x}]", "at least bf16_tflops");
    refuses("engines: []", "no 'engines'");
    refuses("[1, 2]", "a catalog is a map");
    refuses("gpus: *all", "aliases");
    refuses("a: {b: [", "not valid YAML");
    refuses("gpus: []\ngpus: []", "written twice");
}

static void cluster_is(const char *text, int machines, int gpus, int domain)
{
    struct ash_catalog *catalog = NULL;
    struct ash_cluster cluster = {0};

    assert_int_equal(open_with(NULL, &catalog, NULL), 0);
    assert_int_equal(ash_cluster_parse(catalog, text, &cluster, NULL), 0);
    assert_int_equal(cluster.machines, machines);
    assert_int_equal(cluster.gpus, gpus);
    assert_int_equal(cluster.domain_gpus, domain);
    ash_catalog_close(catalog);
}

static void reads_clusters(void **state)
{
    (void)state;
    cluster_is("64xp5.48xlarge", 64, 512, 8);
    cluster_is("p5.48xlarge", 1, 8, 8);
    cluster_is("512xH100", 64, 512, 8);
    cluster_is("2xH100", 1, 2, 2);
    cluster_is("256xGB200", 64, 256, 72);
    cluster_is("4xu-p6e-gb200x72", 4, 288, 72);
}

static void refuses_clusters(void **state)
{
    static const char *const wrong[] = {"",
                                        "0xp5.48xlarge",
                                        "64x",
                                        "64",
                                        "-1xH100",
                                        "9xnope",
                                        "12xH100",
                                        "1048576xp5.48xlarge",
                                        "99999999999999999999xH100"};
    struct ash_catalog *catalog = NULL;
    struct ash_cluster cluster;

    (void)state;
    assert_int_equal(open_with(NULL, &catalog, NULL), 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ash_err err = {0};
        if (ash_cluster_parse(catalog, wrong[i], &cluster, &err) >= 0) fail_msg("'%s' was taken", wrong[i]);
        assert_true(err.text[0] != '\0');
    }
    ash_catalog_close(catalog);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_public_facts),    cmocka_unit_test(every_fact_has_a_source),
        cmocka_unit_test(users_add_and_replace), cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(reads_clusters),        cmocka_unit_test(refuses_clusters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
