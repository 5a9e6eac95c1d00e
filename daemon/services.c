#include "daemon/services.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/documents.h"
#include "daemon/version.h"
#include "peer/peer.h"

static void put_ready(const struct services *services, bool ready, bool verbose, struct buf *body)
{
    static struct facts_check checks[FACTS_CHECKS_MAX];
    const struct facts *facts = services->facts;
    size_t count = verbose ? facts->checks(facts->daemon, checks, FACTS_CHECKS_MAX) : 0;
    ASSERT(count <= FACTS_CHECKS_MAX);
    for (size_t i = 0; i < count; i++) {
        buf_print(body, "[%c]%s %s: %s%s%s\n", checks[i].ok ? '+' : '-', checks[i].name,
                  checks[i].ok ? "ok" : "failed", checks[i].sentence,
                  checks[i].hint[0] != '\0' ? "; " : "", checks[i].hint);
    }
    buf_print(body, ready ? "ready\n" : "not ready\n");
}

static unsigned on_http(void *context, enum http_path path, bool verbose, bool openmetrics,
                        struct buf *body)
{
    struct services *services = context;
    switch (path) {
    case HTTP_METRICS:
        services->metrics.http = http_stats(services->http);
        metrics_write(&services->metrics, openmetrics, body);
        return 200;
    case HTTP_READYZ: {
        bool ready = facts_ready(services->facts);
        put_ready(services, ready, verbose, body);
        return ready ? 200 : 503;
    }
    case HTTP_STATUS:
        document_put(document_status(services->facts), body);
        return 200;
    case HTTP_TARGETS:
        document_put(document_targets(services->facts, http_port(services->http)), body);
        return 200;
    case HTTP_HEALTHZ:
    case HTTP_LIVEZ:
    case HTTP_PAGE:
    case HTTP_PAGE_JS:
    case HTTP_PAGE_CSS:
    case HTTP_OTHER:
    case HTTP_PATHS:
    default:
        ASSERT(false); /* http.c answers these itself. */
        return 500;
    }
}

static void part_closed(struct services *services)
{
    ASSERT(services->open > 0);
    if (--services->open == 0 && services->on_closed != NULL) {
        services->on_closed(services->context); /* The owner may free it in here. */
    }
}

static void on_vitals_closed(struct vitals *vitals)
{
    part_closed(OWNER_OF(vitals, struct services, vitals));
}

static void on_notify_closed(struct notify *notify)
{
    part_closed(OWNER_OF(notify, struct services, notify));
}

static void on_part_closed(void *context)
{
    part_closed(context);
}

static int open_http(struct services *services, uv_loop_t *loop, struct err *err)
{
    const struct config *config = services->config;
    if (config->http.listen[0] == '\0') {
        return 0;
    }
    struct http_settings settings = {.answer = on_http, .context = services};
    int status = peer_address_parse(config->http.listen, &settings.listen, err);
    if (status == 0 && config->http.token_file[0] != '\0') {
        status = http_token_read(config->http.token_file, settings.token, err);
    }
    status = status != 0 ? status : http_open(loop, &settings, &services->http, err);
    if (status == 0) {
        services->open++;
        log_info("http.listening", "address=%.*s:%u",
                 (int)(strrchr(config->http.listen, ':') - config->http.listen),
                 config->http.listen, http_port(services->http));
    }
    return status;
}

static int open_api(struct services *services, uv_loop_t *loop, struct log_ring *ring,
                    uint64_t incarnation, struct err *err)
{
    const struct config *config = services->config;
    struct api_settings settings = {.facts = services->facts,
                                    .log_ring = ring,
                                    .doctor = &services->doctor,
                                    .socket_path = config->socket,
                                    .group = config->group,
                                    .others_look = config->socket_others == CONFIG_OTHERS_LOOK,
                                    .cluster = config->cluster,
                                    .node = config->name,
                                    .version = COPPELIUS_VERSION,
                                    .node_id = config->node_id,
                                    .incarnation = incarnation};
    int status = api_open(loop, &settings, &services->api, err);
    if (status == 0) {
        services->open++;
        log_info("ctl.listening", "socket=%s", config->socket[0] != '\0' ? config->socket : "off");
    }
    return status;
}

int services_open(struct services *services, uv_loop_t *loop, const struct config *config,
                  const struct facts *facts, struct log_ring *ring, uint64_t incarnation,
                  int (*selftest)(void *context, char *sentence, size_t sentence_size,
                                  struct err *err),
                  void *selftest_context, struct err *err)
{
    *services = (struct services){.config = config, .facts = facts};
    struct doctor_settings *doctor = &services->doctor;
    (void)snprintf(doctor->state_dir, sizeof(doctor->state_dir), "%s", config->state_dir);
    (void)snprintf(doctor->device, sizeof(doctor->device), "%s", config->device);
    (void)snprintf(doctor->listen, sizeof(doctor->listen), "%s", config->listen);
    (void)snprintf(doctor->advertise, sizeof(doctor->advertise), "%s", config->advertise_address);
    (void)snprintf(doctor->http, sizeof(doctor->http), "%s", config->http.listen);
    (void)snprintf(doctor->tile_choices, sizeof(doctor->tile_choices), "%s", config->tile_choices);
    doctor->storage_free_least = config->limits.storage_free;
    doctor->selftest = selftest;
    doctor->selftest_context = selftest_context;
    services->metrics = (struct metrics){.facts = facts,
                                         .vitals = &services->vitals,
                                         .version = COPPELIUS_VERSION,
                                         .revision = COPPELIUS_REVISION};
    int status = vitals_open(&services->vitals, loop, config->state_dir, err);
    if (status != 0) {
        return status;
    }
    services->open++;
    notify_open(&services->notify, loop, facts);
    services->open++;
    status = open_http(services, loop, err);
    status = status != 0 ? status : open_api(services, loop, ring, incarnation, err);
    if (status != 0) {
        services_close(services, NULL, NULL);
    }
    return status;
}

void services_close(struct services *services, void (*on_closed)(void *context), void *context)
{
    ASSERT(!services->closing);
    services->closing = true;
    services->doctor.closing = true;
    services->on_closed = on_closed;
    services->context = context;
    /* In reverse; each only begins to close here, so that `open` reaches 0 once. */
    if (services->api != NULL) {
        api_close(services->api, on_part_closed, services);
    }
    if (services->http != NULL) {
        http_close(services->http, on_part_closed, services);
    }
    notify_close(&services->notify, on_notify_closed);
    vitals_close(&services->vitals, on_vitals_closed);
}

int services_reload(struct services *services, const struct config *config, struct err *err)
{
    char token[HTTP_TOKEN_MAX] = "";
    if (config->http.token_file[0] != '\0') {
        int status = http_token_read(config->http.token_file, token, err);
        if (status != 0) {
            return status;
        }
    }
    if (services->http != NULL) {
        http_set_token(services->http, token);
    }
    services->doctor.storage_free_least = config->limits.storage_free;
    return 0;
}
