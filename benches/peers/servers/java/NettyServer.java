import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.handler.codec.LengthFieldPrepender;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.handler.timeout.IdleStateEvent;
import io.netty.handler.timeout.IdleStateHandler;
import java.io.File;

/**
 * Netty 4.2 on its native epoll transport, with its default allocator. The same event loops accept
 * and serve; the default is one loop.
 *
 * usage: NettyServer PORT echo-raw|echo-frames|echo-frames-idle|broadcast [--threads N]
 *
 * The property tls (jdk, or openssl for BoringSSL) adds an SslHandler with that provider; the
 * property tls.folder is the folder with certificate.pem and key.pem.
 */
public final class NettyServer {
    private static final int MAX_FRAME = 1 << 20;

    /** Echoes its input; flushes once per read burst. */
    @Sharable
    private static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.write(msg, ctx.voidPromise());
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            ctx.flush();
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
            if (event instanceof IdleStateEvent) {
                ctx.close();
            }
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            ctx.close();
        }
    }

    /** Forwards every frame to every member; flushes once per read burst. */
    @Sharable
    private static final class Broadcast extends ChannelInboundHandlerAdapter {
        private final ChannelGroup members;

        Broadcast(ChannelGroup members) {
            this.members = members;
        }

        @Override
        public void channelActive(ChannelHandlerContext ctx) {
            members.add(ctx.channel());
        }

        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            members.write((ByteBuf) msg, channel -> true, true);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            members.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            ctx.close();
        }
    }

    /** Returns the TLS 1.3 context, or null if the server is plain. */
    private static SslContext tls() throws Exception {
        String provider = System.getProperty("tls");
        if (provider == null) {
            return null;
        }
        File folder = new File(System.getProperty("tls.folder"));
        return SslContextBuilder
            .forServer(new File(folder, "certificate.pem"), new File(folder, "key.pem"))
            .sslProvider(provider.equals("openssl") ? SslProvider.OPENSSL_REFCNT : SslProvider.JDK)
            .protocols("TLSv1.3")
            .build();
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        String mode = args[1];
        int threads = args.length == 4 && args[2].equals("--threads") ? Integer.parseInt(args[3]) : 1;
        SslContext tls = tls();
        EventLoopGroup loop = new MultiThreadIoEventLoopGroup(threads, EpollIoHandler.newFactory());
        Echo echo = new Echo();
        Broadcast broadcast = new Broadcast(new DefaultChannelGroup(loop.next()));
        ServerBootstrap b = new ServerBootstrap();
        b.group(loop)
            .channel(EpollServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 4096)
            .option(ChannelOption.SO_REUSEADDR, true)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel ch) {
                    ChannelPipeline p = ch.pipeline();
                    if (tls != null) {
                        p.addLast(tls.newHandler(ch.alloc()));
                    }
                    if (mode.equals("echo-frames-idle")) {
                        p.addLast(new IdleStateHandler(60, 0, 0));
                    }
                    if (!mode.equals("echo-raw")) {
                        p.addLast(new LengthFieldBasedFrameDecoder(MAX_FRAME, 0, 4, 0, 4));
                        p.addLast(new LengthFieldPrepender(4));
                    }
                    p.addLast(mode.equals("broadcast") ? broadcast : echo);
                }
            });
        b.bind("127.0.0.1", port).sync().channel().closeFuture().sync();
    }
}
