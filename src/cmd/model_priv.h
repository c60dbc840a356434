/* model - the subcommands of `ashlar model`. */
#ifndef ASH_CMD_MODEL_PRIV_H
#define ASH_CMD_MODEL_PRIV_H

/* ashlar model info: facts of a model. As struct ash_cmd's run. */
int ash_model_info(int argc, char **argv);
/* ashlar model convert: write a model in another precision. As struct ash_cmd's run. */
int ash_model_convert(int argc, char **argv);
/* ashlar model merge: add adapters to the weights of their base. As struct ash_cmd's run. */
int ash_model_merge(int argc, char **argv);

#endif
