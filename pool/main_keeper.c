/* boxery-keeper: no options; everything comes from host.env and the environment. See keeper.c. */
#include "linux/hostconf.h"
#include "linux/log.h"
#include "pool/keeper.h"
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct hostconf conf;
	struct error e = ERROR_INIT;
	int r;

	if (argc != 1) {
		fprintf(stderr, "boxery-keeper: takes no arguments; it is configured by host.env, see boxery-host.env(5)\n");
		return EXIT_STATUS_USAGE;
	}
	/* The command that started us may have stood anywhere; that place must not be kept busy. */
	if (chdir("/") < 0)
		perror("boxery-keeper: /");
	log_open("boxery-keeper", getenv("BOXERY_DEBUG") ? LOG_DEBUG : LOG_INFO);
	r = hostconf_load(&conf, &e);
	if (r == 0)
		r = keeper_run(&conf, &e);
	if (r < 0) {
		log_error("%s", e.text);
		return error_exit_status(&e);
	}
	return EXIT_STATUS_OK;
}
