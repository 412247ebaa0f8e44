#ifndef BOXERY_POOL_LOG_FILE_H
#define BOXERY_POOL_LOG_FILE_H
/* The log of a keeper that a command has started, in state_dir. Its size is looked at by that command, and while it runs. */
#define KEEPER_LOG "keeper.log"
#define KEEPER_LOG_OLD "keeper.log.1" /* what a log that has become too large was */
#ifndef KEEPER_LOG_MAX
#define KEEPER_LOG_MAX (8 * 1024 * 1024)
#define KEEPER_LOG_CHECK_MS 60000
#endif
#endif
