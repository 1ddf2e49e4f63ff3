/* Makes narufs the default VFS of SQLite's own test programs, which scripts/sqlite-suite.sh builds with
** SQLITE_EXTRA_INIT=narufs_suite_init.
**
** Where the environment names an image, the first process opens it, and keeps it open, and served at a directory, to its
** end. Those that it starts come through that directory, with SQLite's own VFS. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sqlite3_narufssqlite_init(sqlite3 *, char **, const struct sqlite3_api_routines *);

/* Opens a file, for good. Not a connection: tests look at what SQLite has of memory, and shut it down. */
static int keep_open(sqlite3_vfs *vfs) {
  /* Around the name of a database there are zeros. */
  static char name[4096];
  sqlite3_file *file = calloc(1, vfs->szOsFile);
  int flags = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_CREATE | SQLITE_OPEN_READWRITE;
  if (file == 0) return SQLITE_NOMEM;
  snprintf(name + 4, sizeof name - 8, "%s/narufs-kept-open", getenv("NARUFS_SQLITE_AT"));
  return vfs->xOpen(vfs, name + 4, file, flags, &flags);
}

int narufs_suite_init(const char *unused) {
  const char *first = getenv("NARUFS_SUITE_FIRST");
  void (*init)(void) = (void (*)(void))sqlite3_narufssqlite_init;
  char self[32];
  sqlite3 *db = 0;
  sqlite3_vfs *vfs = sqlite3_vfs_find("narufs");
  int rc = SQLITE_OK;
  (void)unused;
  if (getenv("NARUFS_SQLITE_IMAGE") == 0) return SQLITE_OK;
  snprintf(self, sizeof self, "%d", (int)getpid());
  if (first != 0 && strcmp(first, self) != 0) return SQLITE_OK;
  setenv("NARUFS_SUITE_FIRST", self, 1);
  if (vfs == 0) {
    sqlite3_auto_extension(init);
    rc = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE, 0);
    sqlite3_close(db);
    sqlite3_cancel_auto_extension(init);
    vfs = sqlite3_vfs_find("narufs");
    if (rc == SQLITE_OK) rc = vfs == 0 ? SQLITE_ERROR : keep_open(vfs);
    /* What was the directory below is hidden by now. */
    if (rc == SQLITE_OK && chdir(getenv("NARUFS_SQLITE_AT")) != 0) rc = SQLITE_CANTOPEN;
  }
  if (rc == SQLITE_OK) rc = sqlite3_vfs_register(vfs, 1);
  if (rc != SQLITE_OK) {
    fprintf(stderr, "narufs is not the default VFS: %d\n", rc);
    exit(1);
  }
  return SQLITE_OK;
}
