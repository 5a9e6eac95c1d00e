#include "daemon/ask.h"

/* What a viewer may ask; whatever else there is or will be changes something, or makes this node
 * read files and compute. */
bool ask_only_looks(const Ctl__Request *request)
{
    static const Ctl__Request__AskCase looks[] = {
        CTL__REQUEST__ASK_JOB_LIST,        CTL__REQUEST__ASK_JOB_SHOW,
        CTL__REQUEST__ASK_JOB_WATCH,       CTL__REQUEST__ASK_JOB_LOGS,
        CTL__REQUEST__ASK_NODES,           CTL__REQUEST__ASK_CHECKPOINT_LIST,
        CTL__REQUEST__ASK_CHECKPOINT_FILE, CTL__REQUEST__ASK_SESSION,
        CTL__REQUEST__ASK_CLUSTER_STATUS,  CTL__REQUEST__ASK_DOCTOR};
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
        if (request->ask_case == looks[i]) {
            return true;
        }
    }
    return false;
}
