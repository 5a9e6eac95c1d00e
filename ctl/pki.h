/* What cluster init, cluster join and pki share. */
#ifndef COPPELIUS_CTL_PKI_H
#define COPPELIUS_CTL_PKI_H

#include "ctl/command.h"
#include "trust/authority.h"

#define PKI_AUTHORITY "/var/lib/coppelius/authority"
#define PKI_FOLDER    "/var/lib/coppelius/tls"

int pki_key_kind(const struct ctl *ctl, enum authority_key *ret_kind, struct problem *problem);
void pki_host_name(char *name, size_t size); /* as the daemon's default name */
/* With the folders on the way to it. */
int pki_make_folder(const char *path, struct problem *problem);

#endif
