/* trainer_priv - between trainer_open.c and trainer.c. */
#ifndef ASH_TRAIN_TRAINER_PRIV_H
#define ASH_TRAIN_TRAINER_PRIV_H

#include <limits.h>
#include "base/str.h"
#include "train/data/dataset.h"
#include "train/layout/stages.h"
#include "train/trainer.h"

#define ASH_ARITHMETIC_BYTES 64

struct ash_trainer {
    const struct ash_job *job;
    struct ash_lr_schedule schedule;
    struct ash_guard_opts guard;
    struct ash_exec exec;
    struct ash_group *group; /* who shares each step; NULL: nobody */
    struct ash_mesh mesh;    /* and how */
    struct ash_dataset *train, *valid;
    size_t valid_sequences;
    struct ash_str from, named;   /* model.from and data.tokenizer on this machine; of remote ones, their cached copies */
    char tokenizer_dir[PATH_MAX]; /* empty: none */
    size_t tokenizer_vocab;
    struct ash_stages stages;
    double *losses; /* of the grains of a step */
    char arithmetic[ASH_ARITHMETIC_BYTES];
    struct ash_train_memory memory;
    size_t weights; /* of the whole model */
};

#endif
