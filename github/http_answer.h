#ifndef BOXERY_GITHUB_HTTP_ANSWER_H
#define BOXERY_GITHUB_HTTP_ANSWER_H
/* How an answer is put together from what libcurl hands over piece by piece. */
#include "github/http.h"

/* One header line, with or without its line end. A status line starts the answer afresh (100 Continue before 200). */
void http_answer_header(struct http_answer *a, const char *line, size_t len);
/* More of the body: 0, -EFBIG past the limit, -ENOMEM. */
int http_answer_body(struct http_answer *a, const char *data, size_t len);
#endif
