package remote

// Programs for sh on the host. Arguments come as "$@", contents on the standard input.
const (
	// becomeRoot runs its arguments as root, by sudo where the user is not. What sudo says
	// is to be in English, and to be known as sudo's.
	becomeRoot = `LC_ALL=C; PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export LC_ALL PATH
if [ "$(id -u)" = 0 ]; then exec "$@"; fi
echo "sudo -n:" >&2
exec sudo -n -- "$@"`

	// begin says on both outputs that what follows is the command's own: a login shell and
	// sudo may have printed before. On the second one with the process and what /proc says
	// of it, by which it can be ended. $1 is the mark. Under sudo it also says where the
	// outputs end: a sudo that logs them loses what it has not passed on when the command
	// ends, and says nothing of it. The shell that waits there keeps its own words to itself, and
	// outlives a SIGTERM, so that a command which heeds none is not left behind.
	begin = `LC_ALL=C; PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export LC_ALL PATH
cd / || exit
read -r stat </proc/$$/stat || stat=
mark=$1; shift
echo "$mark ${SUDO_UID:+whole}"; echo "$mark $$ ${stat##*) }" >&2
[ -n "${SUDO_UID-}" ] || exec "$@"
exec 3>&2 2>/dev/null
trap : TERM
(exec "$@" 2>&3 3>&-)
code=$?
trap - TERM
echo "$mark"; echo "$mark" >&3
[ $code -le 128 ] || kill -s $((code - 128)) $$
exit $code`

	// end sends signal $1 to the process group of process $2, if that is still the one that
	// began at $3.
	end = `read -r stat <"/proc/$2/stat" || exit 0
set -- "$@" ${stat##*) }
[ "${23}" = "$3" ] || exit 0
kill -s "$1" -- "-$6"`

	// put writes its input to $1 with mode $2, by a rename. The first line of the input is
	// the content's size and its sum: an input that ended early, as it does where the
	// connection broke, is never taken for the whole. The file is on the disk before the
	// rename, and the name after it.
	put = `umask 077
path=$1 mode=$2 dir=${1%/*}
read -r size sum || exit 13
[ -d "${dir:=/}" ] || exit 11
[ ! -d "$path" ] || exit 12
temp=$(mktemp "$dir/.regrade-XXXXXXXX") || exit 14
trap 'rm -f "$temp"' EXIT
trap 'exit 15' HUP INT TERM PIPE
cat >"$temp" || exit 14
[ "$(wc -c <"$temp")" -eq "$size" ] || exit 13
got=$(sha256sum <"$temp") || exit 14
[ "${got%% *}" = "$sum" ] || exit 13
chmod "$mode" "$temp" || exit 14
sync "$temp" 2>/dev/null || sync
mv -f "$temp" "$path" || exit 14
sync "$dir" 2>/dev/null || sync`
)

// Exit statuses of put.
const (
	putNoFolder   = 11
	putIsFolder   = 12
	putNotArrived = 13
	putFailed     = 14
	putEnded      = 15
)
