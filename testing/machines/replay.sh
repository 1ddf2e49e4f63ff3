# What guest.sh runs while QEMU records all that is written to /dev/vdc: a load on the file system that `kind` says, on the
# first `size` MiB. Of each operation that has returned the next sectors tell, so that the record has both in their order.
# testing/src/replay reads it.
check 3400 load testing/machines/recorded.sh "$kind" "$count" "$load" "$size" "$durability"
