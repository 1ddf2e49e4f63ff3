# What guest.sh runs with the journal in persistent memory, of the kind that `ring` says, at one of the boots of a machine
# whose power is cut between them: it judges what the one before has left, and works until it is cut itself. What was
# acknowledged by then scripts/machines.sh has heard, and compares.
export ring
cat /sys/bus/nd/devices/ndbus*/wait_probe >/dev/null
((boot > 0)) || check 1200 made testing/machines/ring.sh make
((boot > 0)) || check 3600 killed testing/machines/ring.sh killed
check 3600 recovered testing/machines/ring.sh recover
((boot == of)) || testing/machines/ring.sh work
