#include "ctl/sources.h"

#include <stdio.h>

#include "ctl/document.h"
#include "ctl/terminal.h"

void sources_close(struct sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) {
        client_close(sources->clients[i]);
    }
    sources->count = 0;
}

int sources_open(struct ctl *ctl, struct sources *sources, struct problem *problem)
{
    struct answer answer = {NULL, NULL};
    Ctl__Empty empty;
    ctl__empty__init(&empty);
    Ctl__Request request;
    ctl__request__init(&request);
    request.ask_case = CTL__REQUEST__ASK_NODES;
    request.nodes = &empty;
    int code = client_open_for(ctl, &sources->clients[0], problem);
    if (code != 0) {
        return code;
    }
    sources->count = 1;
    code = client_call(sources->clients[0], &request, &answer, problem);
    size_t index = 0;
    json_t *node = NULL;
    json_array_foreach(document_list(answer.json, "nodes"), index, node)
    {
        struct problem unreachable = {0};
        size_t at = document_true(node, "self") ? 0 : sources->count;
        if (at > 0 &&
            (sources->count == SOURCES_MAX ||
             client_open(document_text(node, "address"), client_identity_named(&ctl->args), 3000,
                         &sources->clients[at], &unreachable) != 0)) {
            say(ctl, "node %s is left out: %s", document_text(node, "name"), unreachable.err.text);
            continue;
        }
        (void)snprintf(sources->names[at], sizeof(sources->names[at]), "%s",
                       document_text(node, "name"));
        sources->count += at > 0 ? 1 : 0;
    }
    answer_done(&answer);
    return code;
}
