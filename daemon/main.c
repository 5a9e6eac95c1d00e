/* coppeliusd: arguments, configuration, state folder; then the program (daemon/program.h). Works as
 * a foreground process, as PID 1 of a container and as a unit of Type=notify alike: logs to stderr,
 * never forks. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/secrets.h"
#include "daemon/program.h"
#include "daemon/tables.h"
#include "daemon/usage.h"
#include "daemon/version.h"

static int bad_usage(const char *sentence, const char *argument)
{
    (void)fprintf(stderr, "coppeliusd: %s%s\n`coppeliusd --help` lists the options\n", sentence,
                  argument);
    return err_exit_status(ERR_USAGE);
}

/* Every fault on stderr, one a line; then what to do. */
static int refuse_config(const struct faults *faults)
{
    struct buf text = BUF_NONE;
    faults_print(faults, &text);
    (void)fwrite(text.bytes, 1, text.size, stderr);
    buf_done(&text);
    return err_exit_status(ERR_CONFIG);
}

static void tell_warnings(struct buf *warnings)
{
    buf_put_u8(warnings, 0);
    char *rest = NULL;
    for (char *line = strtok_r((char *)warnings->bytes, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        log_warning("config.warning", "text=\"%s\"", line);
    }
}

static int begin(struct program *program, bool check_only, bool show)
{
    struct faults faults = FAULTS_NONE;
    struct buf warnings = BUF_NONE;
    struct err err = {0};
    int status = config_read_file(program->config_path, program->settings, program->settings_count,
                                  &program->config, &faults, &warnings);
    if (status != 0) {
        status = refuse_config(&faults);
        faults_done(&faults);
        buf_done(&warnings);
        return status;
    }
    log_set_level((enum log_level)(program->config.log_level + LOG_LEVEL_ERROR));
    tell_warnings(&warnings);
    buf_done(&warnings);
    if (show) {
        struct buf text = BUF_NONE;
        yaml_show(config_schema(), &program->config, &program->config.places, &text);
        bool good = fwrite(text.bytes, 1, text.size, stdout) == text.size && fflush(stdout) == 0;
        buf_done(&text);
        config_done(&program->config);
        return good ? 0 : err_exit_status(ERR_DISK);
    }
    if (check_only) {
        const char *file = program->config_path;
        if (file == NULL) {
            file = access(CONFIG_PATH, F_OK) == 0 ? CONFIG_PATH : "defaults (no file)";
        }
        (void)printf("%s: ok, node %" PRIu32 " of %zu\n", file, program->config.node_id,
                     program->config.peers.count);
        config_done(&program->config);
        return 0;
    }
    if (log_ring_init(&program->ring, program->config.limits.log_lines, &err) == 0) {
        log_set_sink(log_ring_sink, &program->ring);
        if (state_folder_open(program->config.state_dir, program->config.cluster,
                              program->config.name, &program->folder, &err) == 0) {
            status = program_run(program);
        }
    }
    if (err.code != 0) {
        log_error("daemon.failed", "reason=\"%s\"", err.text);
        status = err_exit_status(err.code);
    }
    state_folder_close(&program->folder);
    log_set_sink(NULL, NULL);
    log_ring_done(&program->ring);
    config_done(&program->reloaded);
    config_done(&program->config);
    return status;
}

int main(int argc, char **argv)
{
    secrets_stay_out_of_dumps();
    static struct program program = {.folder = STATE_FOLDER_NONE};
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"device", required_argument, NULL, 'd'},
        {"set", required_argument, NULL, 's'},
        {"check-config", no_argument, NULL, 'k'},
        {"show-config", no_argument, NULL, 'w'},
        {"version", no_argument, NULL, 'v'},
        {"bench-tiles", required_argument, NULL, 'b'},
        {"list-images", required_argument, NULL, 'i'},
        {"images", no_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    char device[256];
    bool check_only = false;
    bool show = false;
    program.config_path = getenv("COPPELIUSD_CONFIG"); /* Before any thread. */
    program_take_over(&program);
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            program.config_path = optarg;
            break;
        case 'd':
        case 's':
            if (program.settings_count == PROGRAM_SETTINGS_MAX) {
                return bad_usage("too many --set", "");
            }
            if (option == 'd') {
                if (snprintf(device, sizeof(device), "device=%s", optarg) >= (int)sizeof(device)) {
                    return bad_usage("--device: too long: ", optarg);
                }
                optarg = device;
            }
            program.settings[program.settings_count++] = optarg;
            break;
        case 'k':
            check_only = true;
            break;
        case 'w':
            show = true;
            break;
        case 'b':
            return tables_tiles(optarg);
        case 'i':
            return tables_loaded(optarg);
        case 'm':
            return tables_images();
        case 'v':
            (void)printf("coppeliusd %s (%s)\n", COPPELIUS_VERSION, COPPELIUS_REVISION);
            return 0;
        case 'h':
            (void)fputs(daemon_usage, stdout);
            return 0;
        case ':':
            return bad_usage("a value is missing after ", argv[optind - 1]);
        default:
            return bad_usage("no such option: ", argv[optind - 1]);
        }
    }
    if (optind < argc) {
        return bad_usage("an argument that is no option: ", argv[optind]);
    }
    ASSERT(signal(SIGPIPE, SIG_IGN) != SIG_ERR); /* libuv writes to sockets that are gone. */
    int status = begin(&program, check_only, show);
    return program.again ? program_replace(&program, argv) : status;
}
