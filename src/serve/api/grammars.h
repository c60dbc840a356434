/* grammars - constrained output: which grammar a request asks for, compiled on the thread that reads the
 * request, or if that takes long after the request was deferred (ASH_API_LATER). */
#ifndef ASH_SERVE_API_GRAMMARS_H
#define ASH_SERVE_API_GRAMMARS_H

#include "serve/api/chat_call.h"

struct ash_api_grammars;

/* Compiled grammars that requests share. The caller owns *grammars_out. */
int ash_api_grammars_open(struct ash_api *api, struct ash_api_grammars **grammars_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_api_grammars_close(struct ash_api_grammars *grammars);
/* Read every field that constrains the output (response_format, structured_outputs, guided_*, grammar, json_schema,
 * regex) into call->grammar: at most one may be given. Errors are in request->err. */
void ash_api_grammars_read(struct ash_api_call *call, struct ash_api_request *request);
/* Where tool_choice asks for calls: the grammar of such an answer. */
void ash_api_grammars_read_tools(struct ash_api_call *call, struct ash_api_request *request,
                                 struct ash_chat_call *chat);
/* The grammar of a schema, for forms that have it at a place of their own. param names the field. is_lenient: what
 * cannot be enforced is ignored ("strict" is not true). */
void ash_api_grammars_set_schema(struct ash_api_call *call, struct ash_api_request *request, const json_t *schema,
                                 const char *param, bool is_lenient);
/* Any JSON object. */
void ash_api_grammars_set_object(struct ash_api_call *call, struct ash_api_request *request, const char *param);

#endif
