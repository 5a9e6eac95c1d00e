/* config check, show: the daemon reads its own file; coppeliusctl runs it and passes on what it
 * says, so that there is one reader of that file and no second opinion. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/command.h"
#include "ctl/spawn.h"

static int run_daemon(const struct ctl *ctl, char *verb, struct problem *problem)
{
    char option[] = "--config";
    char *daemon = NULL;
    int status = 0;
    int code = spawn_find_daemon(&daemon, problem);
    if (code != 0) {
        return code;
    }
    char *arguments[] = {daemon, verb, ctl->args.words_count > 0 ? option : NULL,
                         ctl->args.words_count > 0 ? ctl->args.words[0] : NULL, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        (void)execv(daemon, arguments);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    free(daemon);
    if (pid < 0) {
        return problem_set(problem, ERR_INTERNAL, "fork: %s", err_errno(errno));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 127) {
        return problem_set(problem, ERR_INTERNAL, "coppeliusd could not be run");
    }
    /* It has said what there is to say. */
    return WEXITSTATUS(status) == 0 ? 0 : ERR_CONFIG;
}

int run_config_check(struct ctl *ctl, struct problem *problem)
{
    char verb[] = "--check-config";
    return run_daemon(ctl, verb, problem);
}

int run_config_show(struct ctl *ctl, struct problem *problem)
{
    char verb[] = "--show-config";
    return run_daemon(ctl, verb, problem);
}
