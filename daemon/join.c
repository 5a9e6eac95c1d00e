#include "daemon/join.h"

#include <ctl.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "peer/peer.h"
#include "proto/message.h"

#define ASK_MS   35000 /* a member answers when it is agreed on */
#define ONCE_MS  5000
#define AGAIN_MS 1000
#define TELL_MS  5000

/* protobuf-c wants char *; it only reads. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void put_request(const struct join_settings *settings, struct buf *bytes)
{
    Ctl__Member member;
    Ctl__Request request;
    uint8_t uuid[sizeof(settings->uuid)];
    ctl__member__init(&member);
    ctl__request__init(&request);
    memcpy(uuid, settings->uuid, sizeof(uuid));
    member.how = text_of("join");
    member.name = text_of(settings->name);
    member.address = text_of(settings->address);
    member.role = text_of(settings->role);
    member.uuid = (ProtobufCBinaryData){.len = sizeof(uuid), .data = uuid};
    request.id = 1;
    request.ask_case = CTL__REQUEST__ASK_MEMBER;
    request.member = &member;
    size_t size = ctl__request__get_packed_size(&request);
    buf_reserve(bytes, size);
    bytes->size += ctl__request__pack(&request, bytes->bytes + bytes->size);
}

static int take_reply(const struct buf *bytes, struct roll *ret_roll, struct err *err)
{
    ProtobufCMessage *message = NULL;
    int code = message_unpack(&ctl__reply__descriptor, bytes->bytes, bytes->size, &message, err);
    if (code != 0) {
        return code;
    }
    const Ctl__Reply *reply = (const Ctl__Reply *)(const void *)message;
    if (reply->code != 0) {
        code = err_set(err, reply->code, "%s%s%s", reply->text, reply->hint[0] != '\0' ? "; " : "",
                       reply->hint);
    } else {
        code = roll_parse((const char *)reply->json.data, reply->json.len, ret_roll, err);
    }
    message_free(message);
    return code;
}

static int ask_one(const struct join_settings *settings, const char *address,
                   const struct buf *request, struct roll *ret_roll, struct err *err)
{
    struct buf reply = BUF_NONE;
    int code = peer_ask(settings->cluster, address, settings->trust, request->bytes, request->size,
                        clock_now_ms() + (settings->wait ? ASK_MS : ONCE_MS), &reply, err);
    code = code == 0 ? take_reply(&reply, ret_roll, err) : code;
    buf_done(&reply);
    return code == 0 ? 0 : err_prefix(err, "%s: ", address);
}

int join_cluster(const struct join_settings *settings, struct roll *ret_roll, struct err *err)
{
    struct buf request = BUF_NONE;
    uint64_t told_ms = 0;
    int code = ERR_REACH;
    put_request(settings, &request);
    for (;;) {
        struct err last = {0};
        code = err_set(&last, ERR_REACH, "no member is known");
        for (size_t i = 0; i < settings->members_count && code != 0; i++) {
            struct err why = {0};
            int one = ask_one(settings, settings->members[i], &request, ret_roll, &why);
            if (one == 0 || one == ERR_AUTH || last.code == ERR_REACH) {
                last = why; /* A refusal says more than an address that nobody answers at. */
                code = one;
            }
        }
        if (code == 0 || !settings->wait) {
            *err = code == 0 ? *err : last;
            break;
        }
        if (told_ms == 0 || clock_now_ms() - told_ms >= TELL_MS) {
            told_ms = clock_now_ms();
            log_warning("join.waits", "node=%s reason=\"%s\" next=\"asked again\"", settings->name,
                        last.text);
        }
        struct timespec pause = {AGAIN_MS / 1000, 0};
        (void)nanosleep(&pause, NULL);
    }
    buf_done(&request);
    return code;
}
