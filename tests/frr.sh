# FRR, unpacked from Debian's packages into a folder in which it runs by chroot. Needs apt.sh.
# shellcheck shell=bash

# frr_root FOLDER SUITE: downloads FRR of a Debian suite and its libraries, and prints the folder in which they are
# unpacked. Nothing is installed. Status 77: the packages cannot be downloaded.
frr_root() {
	local folder=$1/$2 root=$1/$2/root package
	if [[ ! -e $root/.complete ]]; then
		mkdir -p "$root"
		# apt takes no package for installed.
		: >"$folder/status"
		private_apt_update "$1" "$2" >/dev/null || return 77
		private_apt "$1" "$2" apt-get -o Dir::State::status="$folder/status" -q -y --no-install-recommends \
			--download-only install frr >/dev/null || return 77
		for package in "$1/apt-$2"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
		prepare_root "$root"
		touch "$root/.complete"
	fi
	printf '%s\n' "$root"
}

# prepare_root ROOT: does the work of the installation scripts: links of a merged /usr, accounts, devices, folders,
# access for vtysh.
prepare_root() {
	local root=$1 name
	for name in bin lib lib64 sbin; do [[ -e $root/$name ]] || ln -s "usr/$name" "$root/$name"; done
	mkdir -p "$root"/{proc,dev,tmp,run/frr,var/lib/frr,var/tmp}
	printf '%s\n' root:x:0:0:root:/root:/bin/sh frr:x:100:100::/:/bin/false >"$root/etc/passwd"
	printf '%s\n' root:x:0: frr:x:100: frrvty:x:101:frr >"$root/etc/group"
	for name in frr other; do
		printf '%s\n' 'auth sufficient pam_permit.so' 'account sufficient pam_permit.so' >"$root/etc/pam.d/$name"
	done
	[[ -e $root/dev/null ]] || mknod -m 666 "$root/dev/null" c 1 3
	[[ -e $root/dev/urandom ]] || mknod -m 666 "$root/dev/urandom" c 1 9
	chown 100:100 "$root/run/frr" "$root/var/lib/frr"
	chmod 1777 "$root/tmp" "$root/var/tmp"
}
