#ifndef BOXERY_CONTROLLER_ONCE_H
#define BOXERY_CONTROLLER_ONCE_H
/* boxery runners once. Returns the exit status. host: as hosts_choose() takes it. */
int once(const char *host, int argc, char **argv);
#endif
