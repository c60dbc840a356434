/* ollama_read - Ollama's requests in the fields of OpenAI's chat form. */
#ifndef ASH_SERVE_API_OLLAMA_READ_H
#define ASH_SERVE_API_OLLAMA_READ_H

#include "serve/api/request.h"

/* Replace the request's JSON and its fields. wants_prompt: /api/generate, whose prompt becomes a message unless it is
 * raw. Errors are in request->err. */
void ash_ollama_translate(struct ash_api_request *request, bool wants_prompt);

#endif
