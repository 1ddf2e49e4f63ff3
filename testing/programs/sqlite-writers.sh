# Tables and writers of databases whose every transaction can be counted; sourced by those that run them.

# A database in this journal mode, with nothing written.
make_database() { # DB MODE
    sqlite3 "$1" "PRAGMA journal_mode=$2; CREATE TABLE t(writer INT, n INT, body TEXT, PRIMARY KEY (writer, n));
        CREATE TABLE total(n INT); INSERT INTO total VALUES (0); CREATE INDEX bodies ON t(body);" >/dev/null
}

# One process a writer, a transaction a row: each locks against the others. Says `done` behind each commit.
write_rows() { # DB WRITER ROWS PATIENCE: milliseconds that it waits for the others
    { echo ".timeout $4"
      echo "PRAGMA synchronous=FULL;"
      for n in $(seq "$3"); do
          echo "BEGIN IMMEDIATE; INSERT INTO t VALUES ($2, $n, hex(randomblob(300))); UPDATE total SET n = n + 1; COMMIT;"
          echo "SELECT 'done';"
      done; } | sqlite3 -bail "$1"
}

# Rows, and the counter that transactions have raised.
count_rows() { # DB
    sqlite3 "$1" 'SELECT count(*), (SELECT n FROM total) FROM t'
}
