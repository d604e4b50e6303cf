package alert

import "errors"

// ErrRefused is a receiver's answer that it does not take this message as it is: the
// message is what is wrong, or the address it was sent to. Which of the two is known
// when it takes another one.
var ErrRefused = errors.New("refused as it is")

// ErrTaken says that the state is another process's: it holds the lock, or has written
// it since this one read it.
var ErrTaken = errors.New("another alert process is at work, this one holds back")
