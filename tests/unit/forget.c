/* For test_connections.py: makes the host forget the connections of the address it is given. */
#include "base/str.h"
#include "vm/connections.h"
#include <stdio.h>

int main(int argc, char **argv)
{
	struct error e = ERROR_INIT;
	struct slot s = {0};

	if (argc != 2 || str_copy(s.address, argv[1]) < 0)
		return 2;
	if (connections_forget(&s, &e) == 0)
		return 0;
	(void)fprintf(stderr, "%s\n", e.text);
	return 1;
}
