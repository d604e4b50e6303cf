package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/exadev/regrade/lab/host"
)

// queueLimit bounds the frames under way in one direction; more are dropped, as a full router queue does. At 1500 bytes and
// 150 ms it allows about 400 MB/s.
const queueLimit = 40_000

// Link is a host's way to the others with a delay on it. It can be changed while it is used.
//
// The kernel's own delay (netem) is not everywhere, so the frames go through two TAP devices and a queue in this process:
// the host's cable is moved to a bridge of its own, one TAP is on that bridge and one on the lab's.
type Link struct {
	delay atomic.Int64  // of each direction
	loss  atomic.Uint64 // chance of a frame to be lost, in parts of 2^32
	undo  Undo
}

// Slow puts a delay on the host's link, in each direction.
func Slow(ctx context.Context, h *host.Host, delay time.Duration) (*Link, error) {
	link := &Link{}
	link.SetDelay(delay)
	if err := link.open(ctx, h); err != nil {
		return nil, fmt.Errorf("slow link of %s: %w", h.Name(), err)
	}
	return link, nil
}

// SetDelay changes the delay of each direction for frames that come from now on.
func (l *Link) SetDelay(delay time.Duration) { l.delay.Store(int64(delay)) }

// SetLoss changes the chance (0 to 1) of a frame to be lost, in each direction.
func (l *Link) SetLoss(probability float64) {
	l.loss.Store(uint64(max(0, min(1, probability)) * (1 << 32)))
}

// Undo plugs the host back into the lab's own bridge.
func (l *Link) Undo() error { return l.undo() }

func (l *Link) open(ctx context.Context, h *host.Host) error {
	lab := h.Lab()
	key := nextKey("")[1:]
	bridge, near, far := "slow"+key, "near"+key, "far"+key

	var files []*os.File
	closeFiles := func() {
		for _, file := range files {
			_ = file.Close()
		}
	}
	for _, name := range []string{near, far} {
		var file *os.File
		err := lab.Within(func() error {
			var err error
			file, err = openTAP(name)
			return err
		})
		if err != nil {
			closeFiles()
			return err
		}
		files = append(files, file)
	}
	commands := [][]string{
		{"link", "add", bridge, "type", "bridge", "forward_delay", "0", "stp_state", "0"},
		{"link", "set", bridge, "up"},
		{"link", "set", near, "master", bridge, "up"},
		{"link", "set", far, "master", host.Bridge, "up"},
	}
	for _, args := range commands {
		if _, err := lab.Machine(ctx, append([]string{"ip", "-n", lab.LAN()}, args...)...); err != nil {
			closeFiles()
			return err
		}
	}
	var forwarders sync.WaitGroup
	stop := make(chan struct{})
	for _, way := range [][2]*os.File{{files[0], files[1]}, {files[1], files[0]}} {
		forwarders.Go(func() { l.forward(way[0], way[1], stop) })
	}
	end := func() {
		close(stop)
		closeFiles()
		forwarders.Wait()
	}
	if err := h.MoveTo(ctx, bridge); err != nil {
		end()
		return err
	}
	l.undo = once(lab, func(ctx context.Context) error {
		err := h.MoveTo(ctx, host.Bridge)
		end()
		_, deleted := lab.Machine(ctx, "ip", "-n", lab.LAN(), "link", "delete", bridge)
		return errors.Join(err, deleted)
	})
	return nil
}

// frame waits for its time.
type frame struct {
	due  time.Time
	data []byte
}

// forward reads frames until the device is closed; a second goroutine sends each one when its time has come, in order.
func (l *Link) forward(from, to *os.File, stop <-chan struct{}) {
	queue := make(chan frame, queueLimit)
	var sender sync.WaitGroup
	sender.Go(func() {
		timer := time.NewTimer(0)
		<-timer.C
		for f := range queue {
			if wait := time.Until(f.due); wait > 0 {
				timer.Reset(wait)
				select {
				case <-timer.C:
				case <-stop:
					return
				}
			}
			// A frame that cannot be sent is a lost frame.
			_, _ = to.Write(f.data)
		}
	})
	defer sender.Wait()
	defer close(queue)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			select {
			case <-stop:
				return
			default:
			}
			// The device is down for a moment, while it is being set up.
			if errors.Is(err, unix.EIO) || errors.Is(err, unix.EBADFD) {
				time.Sleep(time.Millisecond)
				continue
			}
			return
		}
		if loss := l.loss.Load(); loss > 0 && uint64(rand.Uint32()) < loss {
			continue
		}
		f := frame{due: time.Now().Add(time.Duration(l.delay.Load())), data: append([]byte(nil), buffer[:n]...)}
		select {
		case queue <- f:
		default:
		}
	}
}

// openTAP makes a TAP device in the thread's network namespace. It goes when the file is closed. Without a header for
// offloads the kernel hands over whole, finished frames.
func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make TAP %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
