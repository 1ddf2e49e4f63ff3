#!/usr/bin/env bash
# From the initramfs to systemd: at the first boot of a machine it lays out a service that runs systemd.sh.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
units=/etc/systemd/system
if [[ ! -e $units/machine.service ]]; then
    cat >$units/machine.service <<'UNIT'
[Unit]
Description=tests of this machine
After=multi-user.target

[Service]
Type=exec
Environment=PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
ExecStart=/tests/testing/machines/systemd.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=multi-user.target
UNIT
    mkdir -p $units/multi-user.target.wants /var/log/journal
    ln -s ../machine.service $units/multi-user.target.wants/
    # Nobody logs in, and nothing is to begin by itself meanwhile.
    for unit in serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer; do
        ln -s /dev/null "$units/$unit"
    done
    echo machine >/etc/hostname
fi
exec /lib/systemd/systemd "$@"
