# sh throttled.sh BYTES COMMAND…: the command, with reads from the disk of this folder throttled to so many bytes per second by a
# control group that is removed afterwards. Those of files in the page cache are not.
missing() { echo "cannot be staged here: $1" >&2; exit 1; }
bytes=$1
shift
disk=$(findmnt --noheadings --output MAJ:MIN --target . | tr -d ' ')
# A partition is throttled with its disk.
[ -e "/sys/dev/block/$disk/partition" ] && disk=$(cat "/sys/dev/block/$disk/../dev")
[ -n "$disk" ] && [ -e "/sys/dev/block/$disk" ] || missing "$PWD is on no disk; TMPDIR names another folder"
root=/sys/fs/cgroup
added=
if [ -w $root/blkio/cgroup.procs ]; then
  group=$root/blkio/h2lab-$$ file=blkio.throttle.read_bps_device limit="$disk $bytes"
elif [ -w $root/cgroup.subtree_control ] && grep -qw io $root/cgroup.controllers; then
  group=$root/h2lab-$$ file=io.max limit="$disk rbps=$bytes"
  grep -qw io $root/cgroup.subtree_control || { echo +io >$root/cgroup.subtree_control && added=yes; }
else
  missing "no control group for disks (blkio, or io of cgroup2) can be written"
fi
mkdir $group || missing "$group cannot be made"
end() {
  for _ in 1 2 3 4 5; do
    rmdir $group 2>/dev/null && break
    sleep 0.2
  done
  [ -z "$added" ] || echo -io >$root/cgroup.subtree_control
}
trap end EXIT
trap 'exit 1' INT TERM
echo "$limit" >$group/$file || missing "reads of the disk $disk cannot be throttled"
# The command alone is in the group: one with a process in it cannot be removed.
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' $group "$@"
