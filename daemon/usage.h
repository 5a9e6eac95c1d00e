/* What coppeliusd --help prints, and the manual page has. */
#ifndef COPPELIUS_DAEMON_USAGE_H
#define COPPELIUS_DAEMON_USAGE_H

extern const char daemon_usage[];

#endif
