/* trainer_priv - between trainer_open.c and trainer.c. */
#ifndef ASH_TRAIN_TRAINER_PRIV_H
#define ASH_TRAIN_TRAINER_PRIV_H

#include <limits.h>
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
    struct ash_dataset *train_data, *valid_data; /* NULL where parts give the sources */
    struct ash_source train, valid;              /* valid.ops NULL: none */
    struct ash_trainer_parts parts;
    size_t valid_sequences;
    char tokenizer_dir[PATH_MAX]; /* empty: none */
    size_t tokenizer_vocab;
    struct ash_stages stages;
    double *losses; /* of the grains of a step */
    char arithmetic[ASH_ARITHMETIC_BYTES];
    struct ash_train_memory memory;
    size_t weights; /* of the whole model */
};

#endif
