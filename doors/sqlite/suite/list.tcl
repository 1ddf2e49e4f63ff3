# testfixture list.tcl PERMUTATIONS: the files of the suite veryquick, and those that are run beside it; not those in which
# memory is made to fail at each allocation.
set argv0 [lindex $argv 0]
set argv {--verbose=0}
# Under another name it runs nothing.
set script $argv0
set argv0 [file join [file dirname $argv0] all.test]
source $script
array set suite $::testspec(veryquick)
set beside {wal*.test pager*.test journal*.test jrnl*.test crash*.test lock*.test atomic*.test savepoint*.test writecrash.test}
set files $suite(-files)
foreach pattern $beside {
    foreach file [glob -nocomplain [file join [file dirname $argv0] $pattern]] {
        if {![regexp {fault|malloc} $file]} { lappend files [file tail $file] }
    }
}
foreach file [lsort -unique [lmap file $files {file tail $file}]] {
    puts $file
}
