#include "base/secrets.h"
#include "ctl/ctl.h"

int main(int argc, char **argv)
{
    secrets_stay_out_of_dumps();
    return ctl_main(argc, argv);
}
