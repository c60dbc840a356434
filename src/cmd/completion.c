/* ashlar completion: a script with which bash, zsh or fish complete the commands, flags, settings and choices of this
 * program. It is made of the same tables as the help, so it is complete.
 *
 * A script has the words of every command in `case` tables; the shell's part finds out which command is being written.
 * `launch` runs another command, so the words after it are that command's. */
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

enum shell { SHELL_BASH, SHELL_ZSH, SHELL_FISH };

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar completion bash|zsh|fish",
    .about = "Prints a script with which a shell completes commands, flags, settings and their choices.\n"
             "`make install` puts the three where the shells look for them.",
    .examples = "  source <(ashlar completion bash)\n"
                "  ashlar completion zsh > ~/.zfunc/_ashlar\n"
                "  ashlar completion fish > ~/.config/fish/completions/ashlar.fish",
};

static const struct ash_opt_table no_flags = {.section = "", .help = "flags"};

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* "--max-tokens" of a flag, "train.steps=" of a setting. */
static const char *word_of(const struct ash_opt_table *table, const struct ash_opt *opt, char *buf, size_t buf_bytes)
{
    if (table->section[0] != '\0') {
        snprintf(buf, buf_bytes, "%s.%s=", table->section, opt->name);
        return buf;
    }
    snprintf(buf, buf_bytes, "--%s", opt->name);
    for (char *c = buf; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    return buf;
}

/* Text between single quotes, as all three shells read it. */
static void print_quoted(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            printf("'\\''");
        else
            putchar(*text);
    }
}

static void print_choices(const struct ash_opt *opt)
{
    for (size_t i = 0; opt->choices[i] != NULL; i++)
        printf("%s%s", i > 0 ? " " : "", opt->choices[i]);
}

/* What may follow a setting: one of some words, or nothing because it is a switch; else a file's name or a number. */
static bool has_known_values(const struct ash_opt *opt)
{
    return opt->type == ASH_OPT_CHOICE || opt->type == ASH_OPT_BOOL;
}

static void print_values(const struct ash_opt_table *table, const struct ash_opt *opt)
{
    if (opt->type == ASH_OPT_CHOICE)
        print_choices(opt);
    else if (table->section[0] != '\0')
        printf("true false");
}

/* ---- bash and zsh ------------------------------------------------------------------------------------------------ */

static void sh_group(void *ctx, const char *path, const struct ash_cmd *const *commands, size_t count)
{
    const enum shell *shell = ctx;

    printf("    '%s') offers=(", path);
    for (size_t i = 0; i < count; i++) {
        printf("%s'%s", i > 0 ? " " : "", commands[i]->name);
        if (*shell == SHELL_ZSH) {
            putchar(':');
            print_quoted(commands[i]->summary);
        }
        putchar('\'');
    }
    printf(") ;;\n");
}

static void sh_settings(void *ctx, const char *path, const struct ash_opts *opts)
{
    const enum shell *shell = ctx;
    char word[160];

    printf("    '%s') offers=(", path);
    if (strcmp(path, "completion") == 0) printf("'bash' 'zsh' 'fish' ");
    for (size_t i = 0; i < ash_opts_count(opts); i++) {
        const struct ash_opt_table *table;
        const struct ash_opt *opt = ash_opts_at(opts, i, &table);

        printf("%s'%s", i > 0 ? " " : "", word_of(table, opt, word, sizeof(word)));
        if (*shell == SHELL_ZSH) {
            putchar(':');
            print_quoted(opt->help);
        }
        putchar('\'');
    }
    printf("%s'--help%s') ;;\n", ash_opts_count(opts) > 0 ? " " : "", *shell == SHELL_ZSH ? ":action" : "");
}

static void no_group(void *ctx, const char *path, const struct ash_cmd *const *commands, size_t count)
{
    (void)ctx;
    (void)path;
    (void)commands;
    (void)count;
}

static void sh_values(void *ctx, const char *path, const struct ash_opts *opts)
{
    char word[160];
    (void)ctx;

    for (size_t i = 0; i < ash_opts_count(opts); i++) {
        const struct ash_opt_table *table;
        const struct ash_opt *opt = ash_opts_at(opts, i, &table);

        if (!has_known_values(opt)) continue;
        printf("    '%s %s') values='", path, word_of(table, opt, word, sizeof(word)));
        print_values(table, opt);
        printf("' ;;\n");
    }
}

static const char sh_path[] = "# The command that the words before the cursor spell: \"model info\".\n"
                              "_ashlar_path() {\n"
                              "    local word offer offers\n"
                              "    spelt=\n"
                              "    for word; do\n"
                              "        case $word in -*|*=*) continue ;; esac\n"
                              "        [ \"$spelt\" = launch ] && spelt=\n"
                              "        _ashlar_words \"$spelt\"\n"
                              "        for offer in \"${offers[@]}\"; do\n"
                              "            [ \"${offer%%:*}\" = \"$word\" ] && spelt=${spelt:+$spelt }$word\n"
                              "        done\n"
                              "    done\n"
                              "}\n";

static void visit(const struct ash_cmd_visitor *visitor)
{
    size_t count = 0;
    const struct ash_cmd *const *commands = ash_cmd_all(&count);

    ash_cmd_visit(commands, count, visitor);
}

/* What bash and zsh share: the words of a command, the values of a setting, and the command that is being written. */
static void print_tables(enum shell shell)
{
    const struct ash_cmd_visitor words = {sh_group, sh_settings, &shell};
    const struct ash_cmd_visitor values = {no_group, sh_values, &shell};

    printf("# What may follow the command $1.\n_ashlar_words() {\n    offers=()\n    case $1 in\n");
    visit(&words);
    printf("    esac\n}\n"
           "# What may follow the flag or setting $2 of the command $1; a switch takes nothing. False: anything may.\n"
           "_ashlar_values() {\n    case \"$1 $2\" in\n");
    visit(&values);
    printf("    *) return 1 ;;\n    esac\n}\n%s", sh_path);
}

static void print_bash(void)
{
    printf("# bash completion of ashlar, written by `ashlar completion bash`.\n");
    print_tables(SHELL_BASH);
    printf(
        "_ashlar() {\n"
        "    local spelt offers values now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    COMPREPLY=()\n"
        "    [ \"$now\" = = ] && now= || { [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD-2]}; }\n"
        "    case ${COMP_WORDS[COMP_CWORD]}${COMP_WORDS[COMP_CWORD-1]} in\n"
        "    *=*) case $before in -*) ;; *) before=$before= ;; esac ;;\n"
        "    esac\n"
        "    _ashlar_path \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"\n"
        "    case $before in\n"
        "    -*|*=)\n"
        "        if ! _ashlar_values \"$spelt\" \"$before\"; then compopt -o default; return; fi\n"
        "        if [ -n \"$values\" ]; then COMPREPLY=($(compgen -W \"$values\" -- \"$now\")); return; fi ;;\n"
        "    esac\n"
        "    [ \"$spelt\" = launch ] && { _ashlar_words ''; COMPREPLY=($(compgen -W \"${offers[*]}\" -- \"$now\")); }\n"
        "    _ashlar_words \"$spelt\"\n"
        "    COMPREPLY+=($(compgen -W \"${offers[*]}\" -- \"$now\"))\n"
        "    case ${COMPREPLY[0]} in *=) compopt -o nospace ;; '') compopt -o default ;; esac\n"
        "}\n"
        "complete -F _ashlar ashlar\n");
}

static void print_zsh(void)
{
    printf("#compdef ashlar\n# zsh completion of ashlar, written by `ashlar completion zsh`.\n");
    print_tables(SHELL_ZSH);
    printf("_ashlar() {\n"
           "    setopt localoptions noksharrays\n"
           "    local -a all=(\"${words[@]}\") offers flags settings\n"
           "    local spelt values now=${all[CURRENT]} before=${all[CURRENT-1]}\n"
           "    _ashlar_path \"${(@)all[2,CURRENT-1]}\"\n"
           "    case $now in\n"
           "    *=*)\n"
           "        before=${now%%%%=*}; [[ $before = -* ]] || before+==\n"
           "        compset -P '*='\n"
           "        if _ashlar_values \"$spelt\" \"$before\"; then compadd -- ${=values}; else _files; fi\n"
           "        return ;;\n"
           "    esac\n"
           "    if [[ $before = -* ]]; then\n"
           "        if ! _ashlar_values \"$spelt\" \"$before\"; then _files; return; fi\n"
           "        if [[ -n $values ]]; then compadd -- ${=values}; return; fi\n"
           "    fi\n"
           "    if [[ $spelt = launch ]]; then _ashlar_words ''; _describe -t commands command offers; fi\n"
           "    _ashlar_words \"$spelt\"\n"
           "    settings=(${(M)offers:#*=:*}) flags=(${offers:#*=:*})\n"
           "    (( $#settings )) && _describe -t settings setting settings -S ''\n"
           "    _describe -t words word flags || _files\n"
           "}\n"
           "if [ \"$funcstack[1]\" = _ashlar ]; then _ashlar \"$@\"; else compdef _ashlar ashlar; fi\n");
}

/* ---- fish -------------------------------------------------------------------------------------------------------- */

static void fish_group(void *ctx, const char *path, const struct ash_cmd *const *commands, size_t count)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++) {
        printf("complete -c ashlar -n '__ashlar_at \"%s\"%s' -f -a %s -d '", path,
               path[0] == '\0' ? "; or __ashlar_at launch" : "", commands[i]->name);
        print_quoted(commands[i]->summary);
        printf("'\n");
    }
}

static void fish_setting(const char *path, const struct ash_opt_table *table, const struct ash_opt *opt)
{
    char word[160];

    word_of(table, opt, word, sizeof(word));
    printf("complete -c ashlar -n '__ashlar_at \"%s\"' ", path);
    if (table->section[0] == '\0') {
        printf("-l %s%s", word + 2, opt->type == ASH_OPT_CHOICE ? " -x -a '" : opt->type != ASH_OPT_BOOL ? " -r" : "");
        if (opt->type == ASH_OPT_CHOICE) print_values(table, opt);
        if (opt->type == ASH_OPT_CHOICE) putchar('\'');
    } else if (opt->type == ASH_OPT_CHOICE) {
        printf("-a '");
        for (size_t i = 0; opt->choices[i] != NULL; i++)
            printf("%s%s%s", i > 0 ? " " : "", word, opt->choices[i]);
        putchar('\'');
    } else {
        printf("-a '%s'", word);
    }
    printf(" -d '");
    print_quoted(opt->help);
    printf("'\n");
}

static void fish_settings(void *ctx, const char *path, const struct ash_opts *opts)
{
    (void)ctx;
    for (size_t i = 0; i < ash_opts_count(opts); i++) {
        const struct ash_opt_table *table;
        const struct ash_opt *opt = ash_opts_at(opts, i, &table);

        fish_setting(path, table, opt);
    }
    if (strcmp(path, "completion") == 0)
        printf("complete -c ashlar -n '__ashlar_at completion' -f -a 'bash zsh fish'\n");
}

static void print_groups(void *ctx, const char *path, const struct ash_cmd *const *commands, size_t count)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++)
        printf(" '%s%s%s'", path, path[0] != '\0' ? " " : "", commands[i]->name);
}

static void no_settings(void *ctx, const char *path, const struct ash_opts *opts)
{
    (void)ctx;
    (void)path;
    (void)opts;
}

static void print_fish(void)
{
    const struct ash_cmd_visitor paths = {print_groups, no_settings, NULL};
    const struct ash_cmd_visitor all = {fish_group, fish_settings, NULL};

    printf("# fish completion of ashlar, written by `ashlar completion fish`.\n"
           "set -g __ashlar_paths");
    visit(&paths);
    printf("\n# Do the words before the cursor spell the command $argv[1] (\"model info\")?\n"
           "function __ashlar_at\n"
           "    set -l path ''\n"
           "    for word in (commandline -opc)[2..-1]\n"
           "        string match -q -- '-*' $word; and continue\n"
           "        test \"$path\" = launch; and set path ''\n"
           "        set -l longer (string trim -- \"$path $word\")\n"
           "        contains -- $longer $__ashlar_paths; and set path $longer\n"
           "    end\n"
           "    test \"$path\" = \"$argv[1]\"\n"
           "end\n");
    visit(&all);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int respond(const void *flags, const struct ash_opts *opts, const char *word)
{
    static void (*const print[])(void) = {
        [SHELL_BASH] = print_bash, [SHELL_ZSH] = print_zsh, [SHELL_FISH] = print_fish};

    (void)flags;
    (void)opts;
    for (size_t i = 0; i < ASH_COUNT(print); i++) {
        if (strcmp(word, shells[i]) != 0) continue;
        print[i]();
        return 0;
    }
    return ash_cmd_misuse("completion", "there is no script for the shell '%.40s': bash, zsh and fish have one", word);
}

static int run(int argc, char **argv)
{
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&no_flags, NULL}},
                                      .takes_word = true,
                                      .missing_word = "for which shell? bash, zsh or fish",
                                      .respond = respond};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_completion = {"completion", "a script with which bash, zsh or fish complete words", run};
