#ifndef BOXERY_CONTROLLER_SETUP_H
#define BOXERY_CONTROLLER_SETUP_H
/* Commands about hosts; each returns the exit status. */
int setup(int argc, char **argv);
int ssh_config(const char *host, int argc, char **argv);
#endif
