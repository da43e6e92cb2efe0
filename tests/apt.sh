# apt with the package lists of one Debian suite in a folder of its own. The configuration of this
# machine stays as it is, and nothing is installed.
# shellcheck shell=bash

# debian_mirror: prints the address of the Debian archive. Status 77: this machine has none in its apt sources.
# shellcheck disable=SC2016 # apt expands the format
debian_mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
		grep -m1 '/debian/*$' || return 77
}

# private_apt FOLDER SUITE COMMAND ARGUMENT...: COMMAND is apt-get or apt-cache. Status 77: this machine has no Debian
# archive in its apt sources.
private_apt() {
	local folder=$1/apt-$2 suite=$2 command=$3 uri
	shift 3
	mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
	uri=$(debian_mirror) || return 77
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >"$folder/sources.list"
	"$command" -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o Acquire::Languages=none \
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
}

# private_apt_update FOLDER SUITE: fetches the package lists, at most once a day.
private_apt_update() {
	find "$1/apt-$2/lists" -name '*_Packages*' -newermt '-1 day' 2>/dev/null | grep -q . ||
		private_apt "$1" "$2" apt-get -q update >&2
}
