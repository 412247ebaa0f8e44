# Two functions for a job: `plant` leaves behind whatever a job can, as root; `look` counts what it finds of it, a line
# each. Run by bash inside a runner's guest, where `sudo` needs no password. The name is what both agree on.
mark=boxery-leftover

places() { # every folder that root can write, one for each mounted file system and the usual hiding places
	printf '%s\n' / /root /etc /etc/profile.d /etc/cron.d /etc/systemd/system /etc/sudoers.d /opt /opt/actions-runner \
		/usr/local/bin /usr/lib/boxery /lib/modules /boot /srv /mnt /home /home/runner /var/lib /var/spool /var/tmp \
		/tmp /run /dev/shm
}

plant() {
	local p
	for p in $(places); do
		[ ! -d "$p" ] || sudo sh -c "echo '# $mark' >'$p/$mark'; chown 0:0 '$p/$mark'"
	done
	sudo setsid bash -c "exec -a $mark sleep 100000" >/dev/null 2>&1 </dev/null &
	sudo useradd --no-create-home "$mark" || sudo sh -c "echo $mark:x:4242:4242::/:/bin/sh >>/etc/passwd"
	sudo sh -c "echo '* * * * * root touch /tmp/$mark-cron' >/etc/cron.d/$mark"
	sudo sh -c "printf '[Timer]\nOnBootSec=1\n[Install]\nWantedBy=timers.target\n' >/etc/systemd/system/$mark.timer;
		printf '[Service]\nExecStart=/bin/true\n' >/etc/systemd/system/$mark.service; systemctl enable $mark.timer"
	sudo sh -c "echo '203.0.113.66 $mark.invalid' >>/etc/hosts"
	sudo sh -c "echo 'ssh-ed25519 AAAA $mark' >>/run/boxery/authorized_keys"
	sudo sysctl -q -w kernel.panic=4242
	sudo sysctl -q -w vm.swappiness=7
	sudo mount -t tmpfs $mark /mnt
	sudo date -s '+5 hours' >/dev/null
	sync
	sleep 0.5
}

look() { # prints one line for each trace; $1: what the time is, in seconds, by somebody else's clock
	local p now
	for p in $(places); do
		[ ! -e "$p/$mark" ] || echo "file in $p"
	done
	! grep -qa "^$mark" /proc/[0-9]*/cmdline 2>/dev/null || echo "process"
	! grep -q "^$mark:" /etc/passwd || echo "user"
	[ ! -e /etc/cron.d/$mark ] || echo "cron entry"
	[ ! -e /etc/systemd/system/timers.target.wants/$mark.timer ] || echo "timer"
	! grep -q $mark /etc/hosts || echo "line in /etc/hosts"
	! sudo grep -q $mark /run/boxery/authorized_keys || echo "authorized key"
	[ "$(sysctl -n kernel.panic)" != 4242 ] || echo "kernel parameter kernel.panic"
	[ "$(sysctl -n vm.swappiness)" != 7 ] || echo "kernel parameter vm.swappiness"
	! grep -q "^$mark " /proc/mounts || echo "mount"
	now=$(date +%s)
	[ $((now - $1)) -lt 600 ] && [ $((now - $1)) -gt -600 ] || echo "clock off by $((now - $1)) s"
}
