# testfixture run.tcl DIRECTORY PERMUTATIONS FILE: runs a test in a directory, which the VFS serves once it is there.
lassign $argv directory argv0 file
sqlite3 first :memory:
first close
cd $directory
set argv [list --verbose=0 veryquick $file]
source $argv0
