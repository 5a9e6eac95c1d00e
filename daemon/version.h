/* What this program is. COPPELIUS_VERSION and COPPELIUS_REVISION come from CMake. */
#ifndef COPPELIUS_DAEMON_VERSION_H
#define COPPELIUS_DAEMON_VERSION_H

#include "daemon/daemon.h"

#define COPPELIUS_VERSION DAEMON_VERSION
#ifndef COPPELIUS_REVISION
#define COPPELIUS_REVISION "unknown"
#endif

#endif
