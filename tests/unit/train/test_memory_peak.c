/* A run takes the memory that it said it would: the formula compared with the peak of a process that trains. */
#include "unit/train/tiny.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/trainer.h"
#include "unit/sanitized.h"

#define TOLERANCE 0.10

/* Two steps in a process of its own, which then has the peak of nothing else. What it said goes through a pipe. */
static void train_in_child(const char *const *settings, int fd)
{
    struct ash_trainer *trainer = NULL;
    struct ash_err err = {0};
    struct ash_step step;
    struct tiny tiny;
    size_t said;

    tiny_open(&tiny, settings);
    if (ash_trainer_open(&tiny.job, NULL, NULL, NULL, &trainer, &err) < 0) _exit(1);
    for (int i = 0; i < 2; i++)
        if (ash_trainer_step(trainer, &step, &err) < 0) _exit(2);
    struct ash_trainer_facts facts = ash_trainer_get_facts(trainer);
    said = ash_train_memory_total(&facts.memory);
    _exit(write(fd, &said, sizeof(said)) == sizeof(said) ? 0 : 3);
}

static void check_peak(const char *const *settings)
{
    int fds[2], status = 0;
    struct rusage usage;
    size_t said = 0;

    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) train_in_child(settings, fds[1]);
    assert_int_equal(wait4(pid, &status, 0, &usage), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(fds[0], &said, sizeof(said)), sizeof(said));
    close(fds[0]);
    close(fds[1]);
    double peak = (double)usage.ru_maxrss * 1024.0, share = peak / (double)said;
    print_message("said %.1f MB, took %.1f MB: %.3f\n", (double)said * 1e-6, peak * 1e-6, share);
    if (share < 1.0 - TOLERANCE || share > 1.0 + TOLERANCE) fail_msg("%.3f of what was said", share);
}

static void test_peak_is_as_said(void **state)
{
    (void)state;
#if SANITIZED
    skip(); /* a sanitizer's own memory is no part of the formula */
#endif
    /* mostly activations, all of them kept */
    check_peak(SETTINGS("model.hidden=128", "model.layers=4", "model.ffn=512", "data.seq=512", "train.global_batch=8",
                        "train.grains=1", "train.micro_batch=8", "train.precision=fp32"));
    /* mostly state and gradients */
    check_peak(SETTINGS("model.hidden=512", "model.layers=4", "model.ffn=2048", "data.seq=32", "train.global_batch=8",
                        "train.grains=4", "train.micro_batch=2", "train.precision=bf16", "train.recompute=full"));
    /* half of the activations, and logits */
    check_peak(SETTINGS("model.hidden=192", "model.layers=4", "model.ffn=768", "model.vocab=30000", "data.seq=256",
                        "train.global_batch=8", "train.grains=2", "train.micro_batch=4", "train.precision=bf16",
                        "train.recompute=selective"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak_is_as_said)};

    return cmocka_run_group_tests(tests, tiny_setup, scratch_close);
}
