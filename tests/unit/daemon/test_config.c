#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "tests/lib/unit.h"

static struct config config;
static struct faults faults;
static struct buf told; /* faults as a person reads them, or the warnings */

static int read_with(const char *text, const char *const *environment, const char *const *settings,
                     size_t settings_count)
{
    struct config_input input = {.file_name = "c.yaml",
                                 .text = text,
                                 .size = strlen(text),
                                 .environment = environment,
                                 .settings = settings,
                                 .settings_count = settings_count};
    struct buf warnings = BUF_NONE;
    faults = (struct faults)FAULTS_NONE;
    told = (struct buf)BUF_NONE;
    int status = config_read(&input, &config, &faults, &warnings);
    if (status != 0) {
        faults_print(&faults, &told);
    } else {
        buf_put(&told, warnings.bytes, warnings.size);
    }
    buf_put_u8(&told, 0);
    buf_done(&warnings);
    faults_done(&faults);
    return status;
}

static int read_yaml(const char *text)
{
    return read_with(text, NULL, NULL, 0);
}

static void done(void)
{
    config_done(&config);
    buf_done(&told);
}

#define TOLD(want) ck_assert_str_eq((const char *)told.bytes, (want))

static const char three[] = "name: b\n"
                            "listen: 0.0.0.0:7620\n"
                            "insecure: yes\n"
                            "tls: off\n"
                            "peers:\n"
                            "  - {name: a, address: 10.0.0.1:7620}\n"
                            "  - {name: b, address: 10.0.0.2:7620}\n"
                            "  - {name: c, address: 10.0.0.3:7620, role: arbiter}\n";

START_TEST(defaults_make_a_node_alone_on_loopback)
{
    ck_assert_int_eq(read_yaml("name: a\n"), 0);
    ck_assert_str_eq(config.cluster, "coppelius");
    ck_assert_str_eq(config.listen, "127.0.0.1:7620");
    ck_assert_str_eq(config.advertise_address, "127.0.0.1:7620");
    ck_assert_str_eq(config.http.listen, "127.0.0.1:7621");
    ck_assert_str_eq(config.state_dir, "/var/lib/coppelius");
    ck_assert_str_eq(config.socket, "/run/coppelius/coppeliusd.sock");
    ck_assert_uint_eq(config.node_id, 1);
    ck_assert_uint_eq(config.peers.count, 1);
    ck_assert_str_eq(config_peer(&config, 1)->name, "a");
    ck_assert_uint_eq(config.streams, 0);
    ck_assert_uint_eq(config.exchange_threads, 0);
    ck_assert_uint_eq(config.limits.storage_free, 1U << 30);
    ck_assert_uint_eq(config.limits.cache, UINT64_C(64) << 30);
    TOLD("tls: off, since it is absent and all addresses are loopback: whoever is on this machine "
         "may command this node\n");
    done();
}
END_TEST

START_TEST(the_id_is_the_place_among_the_peers)
{
    ck_assert_int_eq(read_yaml(three), 0);
    ck_assert_uint_eq(config.node_id, 2);
    ck_assert_str_eq(config.advertise_address, "10.0.0.2:7620");
    ck_assert_int_eq(config_peer(&config, 3)->role, CONFIG_ARBITER);
    TOLD("tls: off and insecure: yes: whoever reaches 0.0.0.0:7620 may join and command this "
         "node\n");
    done();
}
END_TEST

START_TEST(all_faults_come_in_one_pass)
{
    ck_assert_int_eq(read_yaml("nmae: a\n"
                               "listen: 127.0.0.1\n"
                               "threads: many\n"
                               "state_dir: var\n"
                               "http:\n"
                               "  listen: 0.0.0.0:7621\n"
                               "tls:\n"
                               "  key: k\n"
                               "streams: 99\n"),
                     ERR_CONFIG);
    TOLD("c.yaml:1:1: nmae: unknown key (did you mean \"name\"?)\n"
         "c.yaml:3:10: threads: expected a whole number, got \"many\"\n"
         "c.yaml:4:12: state_dir: must be an absolute path of less than 1000 bytes, got \"var\"\n"
         "c.yaml:8:8: tls.key: must be an absolute path of less than 1000 bytes, got \"k\"\n"
         "c.yaml:9:10: streams: must be in 0..16, got 99\n"
         "c.yaml:2:9: listen: '127.0.0.1' is no address; give IP:PORT, such as 10.0.0.2:7620\n");
    done();
}
END_TEST

START_TEST(plain_text_between_machines_must_be_meant)
{
    ck_assert_int_eq(read_yaml("name: a\nlisten: 0.0.0.0:7620\n"), ERR_CONFIG);
    TOLD("c.yaml: tls: absent, and not all addresses are loopback: `coppeliusctl cluster init` or "
         "`cluster join` makes this node's certificate, then set tls: {}; or set tls: off and "
         "insecure: yes where plain text between machines is acceptable (a private network)\n");
    done();
    ck_assert_int_eq(read_yaml("name: a\nlisten: 10.1.2.3:7620\ntls: off\n"), ERR_CONFIG);
    TOLD("c.yaml:3:6: tls: off, and not all addresses are loopback: `coppeliusctl cluster init` or "
         "`cluster join` makes this node's certificate, then set tls: {}; or set tls: off and "
         "insecure: yes where plain text between machines is acceptable (a private network)\n");
    done();
    ck_assert_int_eq(read_yaml("name: a\nlisten: 10.1.2.3:7620\ntls: {ca: x}\n"), ERR_CONFIG);
    TOLD("c.yaml:3:11: tls.ca: must be an absolute path of less than 1000 bytes, got \"x\"\n");
    done();
}
END_TEST

START_TEST(tls_files_are_where_the_state_is_unless_they_are_named)
{
    ck_assert_int_eq(read_yaml("name: a\nlisten: 10.1.2.3:7620\nstate_dir: /srv/a\ntls: {}\n"), 0);
    ck_assert(config.tls_given);
    ck_assert_str_eq(config.tls.ca, "/srv/a/tls/ca.crt");
    ck_assert_str_eq(config.tls.certificate, "/srv/a/tls/node.crt");
    ck_assert_str_eq(config.tls.key, "/srv/a/tls/node.key");
    ck_assert_str_eq(config.tls.authority, "");
    ck_assert_uint_eq(config.tls.renew_days, 10);
    TOLD("");
    done();
    ck_assert_int_eq(read_yaml("name: a\ntls: {key: /k/a.key, renew_days: 0}\n"), 0);
    ck_assert_str_eq(config.tls.key, "/k/a.key");
    ck_assert_str_eq(config.tls.ca, "/var/lib/coppelius/tls/ca.crt");
    ck_assert_uint_eq(config.tls.renew_days, 0);
    done();
}
END_TEST

START_TEST(peers_that_cannot_meet_are_named)
{
    ck_assert_int_eq(read_yaml("name: a\n"
                               "listen: 0.0.0.0:7620\n"
                               "insecure: yes\n"
                               "peers:\n"
                               "  - {name: a, address: 127.0.0.1:7620}\n"
                               "  - {name: b, address: 10.0.0.2:7620}\n"
                               "  - {name: b, address: 10.0.0.2:7620}\n"
                               "  - {name: d, address: 0.0.0.0:7620}\n"
                               "  - {name: e, address: host:7620}\n"),
                     ERR_CONFIG);
    TOLD(
        "c.yaml:8:24: peers[4].address: 0.0.0.0:7620 is nothing that others can dial; give the "
        "node's "
        "own address and port\n"
        "c.yaml:9:24: peers[5].address: 'host:7620' does not begin with an IPv4 address; give four "
        "numbers, such as 10.0.0.2:7620 (names and IPv6 are not used)\n"
        "c.yaml:7:12: peers[3].name: 'b' is peer 2's name too; give every node its own\n"
        "c.yaml:7:24: peers[3].address: b and b have the same address 10.0.0.2:7620; give every "
        "node "
        "its own\n"
        "c.yaml:5:24: peers[1].address: a (127.0.0.1:7620) cannot be reached from b "
        "(10.0.0.2:7620), which is another machine; give a's address there\n");
    done();
}
END_TEST

START_TEST(a_node_that_joins_has_no_peers)
{
    ck_assert_int_eq(read_yaml("name: d\n"
                               "listen: 127.0.0.1:7623\n"
                               "tls: off\n"
                               "join: 127.0.0.1:7620, 127.0.0.1:7621\n"
                               "role: spare\n"),
                     0);
    ck_assert_str_eq(config.join, "127.0.0.1:7620, 127.0.0.1:7621");
    ck_assert_int_eq(config_peer(&config, config.node_id)->role, CONFIG_SPARE);
    done();
    ck_assert_int_eq(read_yaml("name: a\n"
                               "listen: 127.0.0.1:7620\n"
                               "tls: off\n"
                               "join: 127.0.0.1:76200\n"
                               "peers:\n"
                               "  - {name: a, address: 127.0.0.1:7620}\n"),
                     ERR_CONFIG);
    done();
}
END_TEST

START_TEST(who_it_is_must_be_among_the_peers)
{
    ck_assert_int_eq(read_yaml("name: node-q\n"
                               "peers:\n"
                               "  - {name: node-a, address: 127.0.0.1:7620}\n"
                               "  - {name: node-b, address: 127.0.0.2:7620}\n"),
                     ERR_CONFIG);
    TOLD("c.yaml:1:7: name: 'node-q' is not among the peers (did you mean 'node-a'?); name is "
         "which of "
         "them this node is\n");
    done();
}
END_TEST

START_TEST(loopback_does_not_serve_remote_peers)
{
    ck_assert_int_eq(read_yaml("name: a\n"
                               "insecure: yes\n"
                               "listen: 127.0.0.1:7620\n"
                               "advertise: 10.0.0.9:7620\n"
                               "peers:\n"
                               "  - {name: a, address: 10.0.0.1:7620}\n"
                               "  - {name: b, address: 10.0.0.2:7620}\n"),
                     ERR_CONFIG);
    TOLD("c.yaml:3:9: listen: 127.0.0.1:7620 is loopback: b (10.0.0.2:7620) could not reach this "
         "node; "
         "listen on 0.0.0.0:7620\n"
         "c.yaml:4:12: advertise: 10.0.0.9:7620, but the others dial 10.0.0.1:7620, this node's "
         "entry "
         "in peers; make them the same\n");
    done();
}
END_TEST

START_TEST(http_for_others_needs_a_token_and_a_port_of_its_own)
{
    ck_assert_int_eq(read_yaml("name: a\nhttp: {listen: 0.0.0.0:7620}\n"), ERR_CONFIG);
    TOLD("c.yaml:2:16: http.listen: 0.0.0.0:7620 can be reached from elsewhere, so http.token_file "
         "must "
         "name a file with a token (`openssl rand -hex 32`); or listen on 127.0.0.1\n"
         "c.yaml:2:16: http.listen: port 7620 is `listen`'s too; give another one, such as 7621\n");
    done();
    ck_assert_int_eq(read_yaml("name: a\nhttp: {listen: off}\nsocket: off\n"), 0);
    ck_assert_str_eq(config.http.listen, "");
    ck_assert_str_eq(config.socket, "");
    done();
}
END_TEST

START_TEST(options_win_over_the_environment_and_that_over_the_file)
{
    static const char *const environment[] = {"PATH=/bin",
                                              "COPPELIUSD_DEVICE=GPU-1234",
                                              "COPPELIUSD_THREADS=3",
                                              "COPPELIUSD_HTTP_LISTEN=127.0.0.1:9000",
                                              "COPPELIUSD_SERVICE_HOST=10.0.0.1",
                                              "STATE_DIRECTORY=/var/lib/coppelius/0",
                                              "RUNTIME_DIRECTORY=/run/coppelius/0",
                                              NULL};
    static const char *const settings[] = {"device=cpu"};
    ck_assert_int_eq(
        read_with("name: a\nthreads: 2\ndevice: auto\ntls: off\n", environment, settings, 1), 0);
    ck_assert_str_eq(config.device, "cpu");
    ck_assert_uint_eq(config.threads, 3);
    ck_assert_str_eq(config.http.listen, "127.0.0.1:9000");
    ck_assert_str_eq(config.state_dir, "/var/lib/coppelius/0");
    ck_assert_str_eq(config.socket, "/run/coppelius/0/coppeliusd.sock");
    TOLD("COPPELIUSD_SERVICE_HOST: no setting has this variable, ignoring\n");
    done();
    static const char *const bad[] = {"COPPELIUSD_THREADS=x", NULL};
    ck_assert_int_eq(read_with("name: a\n", bad, NULL, 0), ERR_CONFIG);
    TOLD("COPPELIUSD_THREADS: threads: expected a whole number, got \"x\"\n");
    done();
    static const char *const peers[] = {
        "COPPELIUSD_PEERS=[{name: a, address: 127.0.0.1:1}, {name: b, address: 127.0.0.1:2}]",
        NULL};
    ck_assert_int_eq(read_with("name: b\nlisten: 127.0.0.1:2\ntls: off\n", peers, NULL, 0), 0);
    ck_assert_uint_eq(config.node_id, 2);
    done();
}
END_TEST

START_TEST(a_pod_finds_its_public_address)
{
    static const char *const runpod[] = {"RUNPOD_PUBLIC_IP=203.0.113.5",
                                         "RUNPOD_TCP_PORT_7620=41234", NULL};
    static const char *const vast[] = {"PUBLIC_IPADDR=203.0.113.6", "VAST_TCP_PORT_7620=51234",
                                       NULL};
    static const char text[] = "name: a\nlisten: 0.0.0.0:7620\ninsecure: yes\n";
    ck_assert_int_eq(read_with(text, runpod, NULL, 0), 0);
    ck_assert_str_eq(config.advertise_address, "203.0.113.5:41234");
    done();
    ck_assert_int_eq(read_with(text, vast, NULL, 0), 0);
    ck_assert_str_eq(config.advertise_address, "203.0.113.6:51234");
    done();
    ck_assert_int_eq(read_yaml(text), 0); /* The kernel's route: whatever it is, not 0.0.0.0. */
    ck_assert_str_ne(config.advertise_address, "0.0.0.0:7620");
    done();
}
END_TEST

START_TEST(what_needs_a_restart_is_named)
{
    struct config before;
    char text[256];
    ck_assert_int_eq(read_yaml("name: a\n"), 0);
    before = config;
    buf_done(&told);
    ck_assert_int_eq(read_yaml("name: a\nthreads: 4\nlog_level: debug\nlisten: 127.0.0.1:7000\n"),
                     0);
    config_restart_keys(&before, &config, text, sizeof(text));
    ck_assert_str_eq(text, "listen, peers, threads");
    done();
    ck_assert_int_eq(read_yaml("name: a\nhttp: {listen: 127.0.0.1:7000, token_file: /t}\n"
                               "limits: {cache: 1G, storage_free: 2G, memory: 3G}\n"),
                     0);
    config_restart_keys(&before, &config, text, sizeof(text));
    ck_assert_str_eq(text, "http.listen, limits.memory, limits.cache");
    config_done(&before);
    done();
}
END_TEST

START_TEST(a_file_that_is_not_there_is_said)
{
    struct buf warnings = BUF_NONE;
    faults = (struct faults)FAULTS_NONE;
    told = (struct buf)BUF_NONE;
    ck_assert_int_eq(config_read_file("/nonexistent/c.yaml", NULL, 0, &config, &faults, &warnings),
                     ERR_CONFIG);
    faults_print(&faults, &told);
    buf_put_u8(&told, 0);
    TOLD("/nonexistent/c.yaml: cannot be opened: No such file or directory; give --config FILE\n");
    faults_done(&faults);
    buf_done(&told);
    buf_done(&warnings);
}
END_TEST

Suite *unit_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("file");
    tcase_add_test(tcase, defaults_make_a_node_alone_on_loopback);
    tcase_add_test(tcase, the_id_is_the_place_among_the_peers);
    tcase_add_test(tcase, all_faults_come_in_one_pass);
    tcase_add_test(tcase, plain_text_between_machines_must_be_meant);
    tcase_add_test(tcase, tls_files_are_where_the_state_is_unless_they_are_named);
    tcase_add_test(tcase, peers_that_cannot_meet_are_named);
    tcase_add_test(tcase, a_node_that_joins_has_no_peers);
    tcase_add_test(tcase, who_it_is_must_be_among_the_peers);
    tcase_add_test(tcase, loopback_does_not_serve_remote_peers);
    tcase_add_test(tcase, http_for_others_needs_a_token_and_a_port_of_its_own);
    tcase_add_test(tcase, options_win_over_the_environment_and_that_over_the_file);
    tcase_add_test(tcase, a_pod_finds_its_public_address);
    tcase_add_test(tcase, what_needs_a_restart_is_named);
    tcase_add_test(tcase, a_file_that_is_not_there_is_said);
    suite_add_tcase(suite, tcase);
    return suite;
}
