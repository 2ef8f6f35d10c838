# Installs Debian packages without starting or enabling their services.
set -e
export DEBIAN_FRONTEND=noninteractive

policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi

install() {
	apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}
# The lists of packages are fetched only if they are missing or out of date.
install "$@" || {
	apt-get update -q
	install "$@"
}

if command -v systemctl >/dev/null; then
	for package in "$@"; do
		systemctl disable "$package" || true
	done
fi
